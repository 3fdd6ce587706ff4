"""Sum a vector across all ranks: rank 0 gathers, adds and sends the sum back to everybody.

The ranks find each other by MASTER_ADDR and MASTER_PORT, as programs made for torch.distributed do.
"""

import array
import os
import socket
import struct
import sys
import time

LENGTH = 100_000  # elements of the vector
MEETING = 120  # seconds until everybody must be there

RANK = int(os.environ["RANK"])
SIZE = int(os.environ["WORLD_SIZE"])
MEETING_PLACE = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))


def send(peer, values):
    data = values.tobytes()
    peer.sendall(struct.pack("!II", RANK, len(data)) + data)


def receive(peer):
    rank, length = struct.unpack("!II", read(peer, 8))
    values = array.array("q")
    values.frombytes(read(peer, length))
    return rank, values


def read(peer, length):
    parts = []
    while length:
        part = peer.recv(min(length, 1 << 20))
        if not part:
            raise ConnectionError("a peer closed the connection in the middle of a message")
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def gather_and_answer(values):
    """Rank 0: take every other rank's vector, add them up, send the sum to all."""
    server = socket.create_server(MEETING_PLACE, backlog=SIZE, family=family())
    server.settimeout(MEETING)
    peers = {}
    while len(peers) < SIZE - 1:
        peer, _ = server.accept()
        peer.settimeout(MEETING)
        rank, theirs = receive(peer)
        if rank in peers or not 0 < rank < SIZE:
            raise ValueError(f"unexpected rank {rank}")
        peers[rank] = peer
        values = array.array("q", map(int.__add__, values, theirs))
    for peer in peers.values():
        send(peer, values)
        peer.close()
    return values


def give_and_take(values):
    """Every other rank: send the vector to rank 0 and take the sum from it."""
    with meet() as peer:
        send(peer, values)
        return receive(peer)[1]


def meet():
    """Dial rank 0, which may be a moment later than this rank."""
    end = time.monotonic() + MEETING
    while True:
        try:
            peer = socket.create_connection(MEETING_PLACE, timeout=MEETING)
            peer.settimeout(MEETING)
            return peer
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def family():
    return socket.AF_INET6 if ":" in MEETING_PLACE[0] else socket.AF_INET


def main():
    mine = array.array("q", (RANK + i for i in range(LENGTH)))
    total = gather_and_answer(mine) if RANK == 0 else give_and_take(mine)
    # The sum over all ranks r of (r + i) is known without any message.
    ranks = SIZE * (SIZE - 1) // 2
    wrong = [i for i in range(LENGTH) if total[i] != ranks + SIZE * i]
    if wrong or len(total) != LENGTH:
        sys.exit(f"rank {RANK}: {len(wrong)} of {LENGTH} sums are wrong, the first at {wrong[:1]}")
    print(f"rank {RANK} of {SIZE}: the sums of {LENGTH} elements are right", flush=True)


main()
