"""The settings of a Pathfinder picture: the parameters of the generator, and those of each published size.

Published values: the data set descriptions of the Long Range Arena's code (Tay et al., 2021), over the defaults of the
generator of Kim et al., "Disentangling neural mechanisms for perceptual grouping" (2020).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

# the published pictures whose curves are longest: the "hard" ones, which the benchmark's numbers are of
PUBLISHED_CONTOUR_LENGTH = 14


@dataclass(frozen=True)
class Settings:
    """Parameters of the generator; lengths are in pixels.

    - `size`: height and width of the picture.
    - `padding`: width of the border in which nothing grows.
    - `seed_distance`: distance of the first ends of the two long contours.
    - `marker_radius`, `thickness`: radius of the two discs, thickness of a segment.
    - `contour_length`, `distractor_length`: segments of a long contour, and of a short one.
    - `num_distractors`: short contours that are tried to be placed.
    - `segment_length`, `margins`: length of a segment, and the space kept around it: one of `margins` for each picture.
    - `continuity`: how sharply straight continuations are preferred.
    - `snake_contrast`, `segment_contrast`: the long contours have their product, the short ones the first alone.
    - `antialias`: how many times finer lines are drawn.
    """

    size: int
    seed_distance: int
    marker_radius: float
    thickness: float
    margins: tuple[int, ...]
    num_distractors: int
    continuity: float
    snake_contrast: float
    segment_contrast: float = 1.0
    padding: int = 1
    segment_length: int = 5
    contour_length: int = PUBLISHED_CONTOUR_LENGTH
    distractor_length: int = PUBLISHED_CONTOUR_LENGTH // 3
    antialias: int = 2

    def __post_init__(self) -> None:
        # a segment keeps a strip of this area to itself, whatever the contour's shape
        needed = 2 * (self.contour_length - 1) * self.segment_length * (1 + min(self.margins))
        if needed > (self.size - 2 * self.padding) ** 2:
            raise ValueError(
                f"contour_length={self.contour_length}: two contours of so many segments do not fit into {self.size} x "
                f"{self.size} pixels; give a shorter one"
            )

    @property
    def target_contrast(self) -> float:
        return self.snake_contrast * self.segment_contrast

    @property
    def drawing(self) -> "Settings":
        """The same without numbers of segments and contours, which do not matter to how single segments are drawn."""
        return replace(self, contour_length=2, distractor_length=1, num_distractors=0)

    def half(self, margin: int) -> int:
        """Pixels on each side of the one that a segment starts from, in the square that it is drawn in."""
        return self.segment_length + math.ceil(self.thickness) + margin


# maximum number of segments of all short contours of a picture together, by size
DISTRACTOR_BUDGETS: Mapping[int, int] = MappingProxyType({32: 20, 64: 22, 128: 35, 256: 30})

SETTINGS: Mapping[int, Settings] = MappingProxyType(
    {
        32: Settings(
            size=32,
            seed_distance=7,
            marker_radius=1.5,
            thickness=0.5,
            margins=(1,),
            num_distractors=5,
            continuity=1.0,
            snake_contrast=2.0,
            segment_contrast=0.75,
            segment_length=2,
        ),
        64: Settings(
            size=64,
            seed_distance=12,
            marker_radius=2.5,
            thickness=1.0,
            margins=(1,),
            num_distractors=5,
            continuity=1.8,
            snake_contrast=0.8,
        ),
        128: Settings(
            size=128,
            seed_distance=20,
            marker_radius=3.0,
            thickness=1.5,
            margins=(2, 3),
            num_distractors=8,
            continuity=1.8,
            snake_contrast=0.9,
        ),
        256: Settings(
            size=256,
            seed_distance=27,
            marker_radius=5.0,
            thickness=2.0,
            margins=(3,),
            num_distractors=7,
            continuity=1.8,
            snake_contrast=1.0,
            padding=22,
        ),
    }
)


def make_settings(
    size: int,
    contour_length: int = PUBLISHED_CONTOUR_LENGTH,
    distractor_length: int | None = None,
    num_distractors: int | None = None,
    continuity: float | None = None,
) -> Settings:
    """The settings of a published size, with contours of another length.

    None stands for what follows from the rest: a third of the contour's length, as many short contours as the size's
    budget of segments allows, and the published continuity.

    Raises:
        ValueError: no picture can be made with the settings.
    """
    length = max(1, contour_length // 3) if distractor_length is None else distractor_length
    return replace(
        SETTINGS[size],
        contour_length=contour_length,
        distractor_length=length,
        num_distractors=DISTRACTOR_BUDGETS[size] // length if num_distractors is None else num_distractors,
        continuity=SETTINGS[size].continuity if continuity is None else continuity,
    )
