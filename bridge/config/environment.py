"""The environment's variables, which override the file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic_settings import BaseSettings, EnvSettingsSource

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo
    from pydantic_settings import PydanticBaseSettingsSource


class Environment(EnvSettingsSource):
    """Reads no JSON where it does not know the type, as below `brokers`, unlike pydantic-settings: there `12345678` may be a password, and so may `null`."""

    def decode_complex_value(self, field_name: str, field: FieldInfo | None, value: Any) -> Any:
        """See EnvSettingsSource. Of an unknown type only lists and mappings are JSON; ValueError leaves the others text."""
        if field is None and not str(value).lstrip().startswith(("{", "[")):
            raise ValueError(f"{field_name} is text")
        return super().decode_complex_value(field_name, field, value)  # type: ignore[arg-type]  # it is called without a field, and takes it


class Overridden(BaseSettings):
    """Settings made of what the file holds, overridden by the environment; pydantic-settings would have it the other way round."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - pydantic-settings calls by keyword
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Environment first, then the file."""
        return Environment(settings_cls), init_settings
