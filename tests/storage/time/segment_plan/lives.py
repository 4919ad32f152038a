"""Lives of one log beside the model, each from a seed, which decides all that happens and is asked."""

import shutil
import struct
import zlib

import crc32c

from tests.storage.time.segment_plan.life import Life, seen
from tests.storage.time.segment_plan.questions import ask_append_times, look_up, look_up_appended
from tests.storage.time.segment_plan.stops import headers, kill, kill_in_write, lose_power, stop
from tidelog.storage.log.times import partition_times

LOOKUPS_OF_A_LIFE = 400
LONGEST_LIFE = 400  # steps, for a life that hardly looks anything up


STEPS = (
    *[Life.append] * 24,
    *[look_up] * 3,
    *[ask_append_times] * 2,
    *[Life.wait] * 2,
    *[look_up_appended] * 3,
    *[Life.retain] * 4,
    *[Life.alter] * 2,
    Life.trim,
    Life.flush,
    Life.checkpoint,
    stop,
    kill,
    *[kill_in_write] * 2,
    lose_power,
)
"""What may happen next, as often as it is likely."""


def live(path, seed, lookups=LOOKUPS_OF_A_LIFE):
    """Live until enough has been asked; what fails names the seed."""
    life = Life(path / f"life{seed}", seed)
    step = 0
    try:
        while life.lookups < lookups and step < LONGEST_LIFE:
            life.random.choice(STEPS)(life)
            step += 1
        look_up(life)
        look_up_appended(life)
        ask_append_times(life)
    except Exception as error:
        raise AssertionError(f"seed: TIDELOG_MODEL_SEED={seed}, step {step}: {error!r}") from error
    finally:
        life.store._release()
        shutil.rmtree(path / f"life{seed}", ignore_errors=True)
    seen["lives"] += 1


# --- logs of somebody else ---


def lie(data, pick):
    """Give batches of formats 1 and 2 another largest time, with a checksum that holds."""
    data = bytearray(data)
    for position, size, magic, _ in list(headers(data)):
        attributes = data[position + 22] if magic == 2 else data[position + 17]
        if attributes & 8 or pick.random() < 0.5:
            continue  # with LogAppendTime the header's time is the records'
        told = pick.choice([-1, 0, 5, 10**6, 2**61, -9])
        if magic == 2:
            struct.pack_into(">q", data, position + 35, told)
            told_crc = crc32c.crc32c(bytes(data[position + 21 : position + size]))
            struct.pack_into(">I", data, position + 17, told_crc)
        elif magic == 1 and attributes & 7:
            struct.pack_into(">q", data, position + 18, told)
            told_crc = zlib.crc32(bytes(data[position + 16 : position + size]))
            struct.pack_into(">I", data, position + 12, told_crc)
    return bytes(data)


def visit(path, seed):
    """Open what somebody else has written, with headers that lie, and look things up."""
    life = Life(path / f"foreign{seed}", seed)
    life.has_absurd_times = False
    try:
        for _ in range(life.random.choice([10, 40])):
            life.append()
            if not life.random.randrange(6):
                life.alter()
        life.store.close()
        (life.path / "t-0" / partition_times.FILE_NAME).unlink()
        for file in sorted((life.path / "t-0").iterdir()):
            if file.suffix == ".appendtimes":
                file.unlink()
            elif file.suffix == ".log":
                file.write_bytes(lie(file.read_bytes(), life.random))
            elif (
                file.suffix in {".index", ".timeindex", ".negativetimes"}
                and life.random.random() < 0.3
            ):
                file.unlink()
        for row in life.rows:
            row.append = None
        life.let_time_go_on()
        life.reopen()
        assert life.pieces[-1].is_ended == (life.pieces[-1].size > 0)
        look_up(life)
        look_up_appended(life)
        ask_append_times(life)
        for _ in range(8):  # a log may be gone on with
            life.now += 50
            life.append()
        look_up(life)
        look_up_appended(life)
        ask_append_times(life)
        stop(life)
        look_up(life)
    except Exception as error:
        raise AssertionError(f"foreign log, seed {seed}: {error!r}") from error
    finally:
        life.store._release()
        shutil.rmtree(path / f"foreign{seed}", ignore_errors=True)
