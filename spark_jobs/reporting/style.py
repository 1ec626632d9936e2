"""How the report looks: light and dark, from 400 pixels on. Text is at least 13 pixels and stands out from what is behind it by 4.5 to 1."""

STYLE = """
:root{color-scheme:light dark;--ink:#1b2027;--quiet:#566170;--paper:#fff;--card:#f4f6f8;--line:#d4dae1;--dim:#e6eaee;
--done:#2b6cb0;--open:#b7791f;--other:#718096;--wrong:#c53030;--clean:#22703f;--doubt:#8a5300;--clean-card:#e8f5ec;--wrong-card:#fdecec;--doubt-card:#fdf3dc}
@media(prefers-color-scheme:dark){:root{--ink:#e7eaee;--quiet:#a3aebb;--paper:#13171c;--card:#1d232a;--line:#353e48;--dim:#29313a;
--done:#63a4e8;--open:#d9a441;--other:#8d99a8;--wrong:#ff8a8a;--clean:#6fd394;--doubt:#f0c45c;--clean-card:#15291d;--wrong-card:#331b1d;--doubt-card:#302613}}
*{box-sizing:border-box}
body{margin:0;font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Liberation Sans",sans-serif;color:var(--ink);background:var(--paper);
font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
main{max-width:1100px;margin:0 auto;padding:20px 16px 40px}
h1,h2,h3,p,ul,ol,table{margin:0}h2{font-size:20px;margin:40px 0 8px}h3{font-size:16px}h3.bad{margin-top:22px}
.quiet{color:var(--quiet)}.small{font-size:13px}code{font:13px/1.45 ui-monospace,"Liberation Mono",Menlo,monospace}
.brand{display:flex;flex-wrap:wrap;justify-content:space-between;gap:0 24px;margin-bottom:12px}
.verdict{display:flex;gap:20px;align-items:flex-start;border-radius:14px;padding:22px 24px;border-left:8px solid}
.verdict h1{font-size:34px;line-height:1.15}.verdict p{font-size:17px;margin-top:6px}.verdict ul{margin-top:10px;padding-left:20px}
.verdict>svg{flex:none;width:52px;height:52px}.verdict>svg *{fill:none;stroke:currentColor;stroke-width:3;stroke-linecap:round;stroke-linejoin:round}
.verdict.clean{background:var(--clean-card);border-color:var(--clean)}.clean>svg,.clean h1{color:var(--clean)}
.verdict.discrepancies{background:var(--wrong-card);border-color:var(--wrong)}.discrepancies>svg,.discrepancies h1{color:var(--wrong)}
.verdict.cannot_say{background:var(--doubt-card);border-color:var(--doubt)}.cannot_say>svg,.cannot_say h1{color:var(--doubt)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(132px,1fr));gap:10px;margin-top:14px}
.tiles.findings{grid-template-columns:repeat(auto-fill,minmax(235px,1fr))}
.tile{background:var(--card);border-radius:10px;padding:10px 14px}.tile b{display:block;font-size:24px;line-height:1.2}
.tile.none b{color:var(--quiet);font-weight:400}.tile.wrong{background:var(--wrong-card)}.tile.wrong b{color:var(--wrong)}
.tile.tolerated{background:var(--doubt-card)}.tile.tolerated b{color:var(--doubt)}
.chart{display:block;width:100%;overflow:visible}.chart text{fill:var(--quiet);font-size:13px}.chart line{stroke:var(--line)}
.done{fill:var(--done)}.open{fill:var(--open)}.other{fill:var(--other)}.wrong{fill:var(--wrong)}.dim{fill:var(--dim)}
.legend{display:flex;flex-wrap:wrap;gap:2px 18px;padding:0;margin:8px 0 0;list-style:none}.legend svg{width:12px;height:12px;margin-right:6px}
.histogram{display:grid;grid-template-columns:max-content 1fr max-content;gap:3px 12px;align-items:center;margin-top:14px}
.histogram .n{text-align:right}
.places{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr));gap:14px;margin-top:14px}
.place{border:1px solid var(--line);border-radius:10px;padding:12px 16px 8px;min-width:0}.place p{margin-bottom:10px}
.bad{color:var(--wrong);fill:none;font-weight:600}
table{width:100%;table-layout:fixed;font-size:14px;border-collapse:collapse;margin-top:6px}details{margin-top:8px}summary{cursor:pointer;color:var(--quiet)}
th,td{text-align:left;vertical-align:top;padding:6px 14px 6px 0;border-bottom:1px solid var(--line)}th{color:var(--quiet);font-weight:400;font-size:13px}
th:last-child,td:last-child{padding-right:0}td.n,th.n{text-align:right}td.n,th{white-space:nowrap}th.t{width:196px}th.n{width:104px}
footer{margin-top:40px}
@media(max-width:760px){.tiles.findings{grid-template-columns:repeat(auto-fill,minmax(150px,1fr))}.findings b{font-size:18px}
.verdict{flex-direction:column;gap:10px;padding:18px}.verdict h1{font-size:28px}
table,tbody,tr,td{display:block}thead{display:none}tr{border-bottom:1px solid var(--line);padding:8px 0}
td{border:0;padding:1px 0;display:grid;grid-template-columns:92px 1fr;gap:8px}td.n{text-align:left}td.n{white-space:normal}td:empty{display:none}
td::before{content:attr(data-name);color:var(--quiet);font-size:13px}}
"""
