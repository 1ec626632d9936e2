// What is wrong with how a page looks, as sentences. Run in the page, after all that folds was unfolded.
() => {
  const SMALLEST = 12, TEXT = 4.5, MARK = 3;
  const problems = [];
  const colour = (told) => (told.match(/[\d.]+/g) || [0, 0, 0, 0]).map(Number);
  const light = (channel) => (channel / 255 <= 0.04045 ? channel / 255 / 12.92 : ((channel / 255 + 0.055) / 1.055) ** 2.4);
  const luminance = ([r, g, b]) => 0.2126 * light(r) + 0.7152 * light(g) + 0.0722 * light(b);
  const contrast = (one, other) => {
    const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const behind = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const found = colour(getComputedStyle(each).backgroundColor);
      if (found.length < 4 || found[3] === 1) return found;
    }
    return matchMedia('(prefers-color-scheme: dark)').matches ? [18, 18, 18] : [255, 255, 255];
  };
  const clips = (element) => {
    const found = [];
    for (let each = element; each && each !== document.body; each = each.parentElement) {
      if (getComputedStyle(each).overflowX !== 'visible' && each.tagName !== 'svg') found.push(each.getBoundingClientRect());
    }
    return [...found, { left: 0, right: innerWidth }];
  };

  if (document.documentElement.scrollWidth > innerWidth) problems.push(`the page is ${document.documentElement.scrollWidth} px wide`);

  const texts = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, element = node.parentElement;
    if (!node.data.trim() || element.closest('title, style, script') || !element.checkVisibility()) continue;
    const range = document.createRange(), style = getComputedStyle(element), name = node.data.trim().slice(0, 40);
    range.selectNodeContents(node);
    const scale = element.getScreenCTM ? element.getScreenCTM().a : 1;
    if (parseFloat(style.fontSize) * scale < SMALLEST) problems.push(`"${name}" is small: ${parseFloat(style.fontSize) * scale} px`);
    const seen = contrast(colour(element.closest('svg') ? style.fill : style.color), behind(element));
    if (seen < TEXT) problems.push(`"${name}" is faint: ${seen.toFixed(2)}`);
    for (const box of range.getClientRects()) {
      if (box.width * box.height === 0) continue;
      const room = box.height * 0.15;  // lines may stand closer than their boxes are high
      texts.push({ name, left: box.left + 1, right: box.right - 1, top: box.top + room, bottom: box.bottom - room });
      if (clips(element).some((clip) => box.left < clip.left - 1 || box.right > clip.right + 1)) problems.push(`"${name}" is cut off`);
    }
  }
  texts.forEach((one, index) => {
    for (const other of texts.slice(index + 1)) {
      if (one.left < other.right && other.left < one.right && one.top < other.bottom && other.top < one.bottom) {
        problems.push(`"${one.name}" and "${other.name}" overlap`);
      }
    }
  });
  for (const cell of document.querySelectorAll('[data-name]')) {
    const style = getComputedStyle(cell, '::before');
    if (style.content === 'none' || !cell.checkVisibility()) continue;
    if (parseFloat(style.fontSize) < SMALLEST) problems.push(`a cell's label is small: ${style.fontSize}`);
    if (contrast(colour(style.color), behind(cell)) < TEXT) problems.push('the label of a cell is faint');
  }

  for (const chart of document.querySelectorAll('svg[role=img]')) {
    const box = chart.getBoundingClientRect();
    if (box.width < 40 || box.height < 10) problems.push(`a chart has no size: ${box.width} x ${box.height}`);
    for (const mark of chart.querySelectorAll('rect')) {
      const drawn = mark.getBoundingClientRect();
      if (drawn.width * drawn.height === 0) problems.push('a mark has no size');
      if (drawn.left < box.left - 1 || drawn.right > box.right + 1 || drawn.top < box.top - 1 || drawn.bottom > box.bottom + 1) {
        problems.push(`a mark stands outside of "${chart.ariaLabel}"`);
      }
      const seen = contrast(colour(getComputedStyle(mark).fill), behind(chart));
      if (!mark.classList.contains('dim') && seen < MARK) problems.push(`a mark is faint: ${seen.toFixed(2)}`);
    }
  }
  return [...new Set(problems)];
}
