"""The packet protocol of an episode: what may be said when, judged packet by packet; pure, without I/O.

    from proctor.episode import Author, Judge, Settings

`Judge` judges a stream, `Settings` says how strictly, `Author` makes packets.
"""

from proctor.episode.author import Author
from proctor.episode.judge import Judge
from proctor.episode.settings import Settings

__all__ = ["Author", "Judge", "Settings"]
