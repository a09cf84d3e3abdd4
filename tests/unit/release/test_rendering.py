"""The commands that Muster names for a release apply files that a release has."""

import pytest

from muster.api.installation import InstallationProfile
from release.rendering import DEFINITIONS, OVERLAYS


@pytest.mark.parametrize("profile", InstallationProfile)
def test_a_command_names_files_of_the_release(profile: InstallationProfile) -> None:
    of_definitions = profile.definitions_command.rpartition(" ")[2].removesuffix(")")
    assert DEFINITIONS[of_definitions] == profile.definitions
    overlay = OVERLAYS[profile.overlay_command.rpartition(" ")[2].removesuffix(")")]
    assert (overlay.folder, overlay.definitions) == (profile.overlay, of_definitions)
