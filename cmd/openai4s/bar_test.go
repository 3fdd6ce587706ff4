package main

import (
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"
)

// On a terminal one line moves; the job's output stands above it whole, and the result is the last line.
func TestBarOnATerminal(t *testing.T) {
	d := newDesk(t, map[string]string{"job.toml": `command = ["sh", "-c", '''
echo '@openai4s:progress {"fraction":0.5,"phase":"encoding"}'
sleep 1
echo "from $OPENAI4S_RANK"
''']
nodes = 2
setup = ["sleep 1"]
`})
	c := exec.Command(filepath.Join(programs, "openai4s"), "submit", "job.toml")
	c.Dir, c.Env = d.dir, append(environment(d.home), "TERM=xterm")
	terminal, err := pty.StartWithSize(c, &pty.Winsize{Rows: 24, Cols: 100})
	require.NoError(t, err)
	defer terminal.Close()
	text, err := io.ReadAll(terminal)
	if !errors.Is(err, syscall.EIO) { // what Linux says at a terminal's end
		require.NoError(t, err)
	}
	require.NoError(t, c.Wait(), string(text))
	shown := strings.ReplaceAll(string(text), "\r\n", "\n")
	require.Regexp(t, `wl_[0-9a-f]+ \[[=>-]+\] ACTIVE  2 of 2 ranks`, shown)
	require.Regexp(t, `\] ACTIVE  50 % encoding\n`, shown)
	require.Regexp(t, `\x1b\[1A`, shown, "the line doesn't move")
	require.Regexp(t, `(?m)^(\x1b\[\S*)?from 0$`, shown)
	require.Regexp(t, `(?m)^(\x1b\[\S*)?from 1$`, shown)
	require.Regexp(t, `wl_[0-9a-f]+ COMPLETED in [0-9.]+m?s\n$`, shown)
}

// A terminal that can't move its cursor gets lines.
func TestLinesOnADumbTerminal(t *testing.T) {
	d := newDesk(t, map[string]string{"job.toml": goodJob})
	c := exec.Command(filepath.Join(programs, "openai4s"), "submit", "job.toml")
	c.Dir, c.Env = d.dir, append(environment(d.home), "TERM=dumb")
	terminal, err := pty.StartWithSize(c, &pty.Winsize{Rows: 24, Cols: 100})
	require.NoError(t, err)
	defer terminal.Close()
	text, err := io.ReadAll(terminal)
	if !errors.Is(err, syscall.EIO) {
		require.NoError(t, err)
	}
	require.NoError(t, c.Wait(), string(text))
	require.NotContains(t, string(text), "\x1b")
	require.Contains(t, string(text), " COMPLETED in ")
}
