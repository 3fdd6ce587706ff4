package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/openai4s/hpc/gateway/api"
)

// outputPoll is how often a followed output file is read.
const outputPoll = 100 * time.Millisecond

// outputFile is where a rank's output is, or where all of it is if the name has no %r. known is false while the
// name has the scheduler's id in it and that isn't known.
func outputFile(w api.Workload, rank int) (path string, known bool) {
	if w.Output == "" || strings.Contains(w.Output, "%j") && w.Job.ID == "" {
		return "", false
	}
	return strings.NewReplacer("%w", string(w.ID), "%j", w.Job.ID, "%r", strconv.Itoa(rank)).Replace(w.Output), true
}

// perRank tells whether every rank has an output file of its own.
func perRank(w api.Workload) bool { return strings.Contains(w.Output, "%r") }

// tail reads a growing file from where it stopped.
type tail struct {
	path   string
	offset int64
}

// copy writes to out what the file holds beyond the last call's end. The file is opened anew each time, so that a
// shared file system shows what other hosts wrote. fs.ErrNotExist: it isn't there (yet).
func (t *tail) copy(out io.Writer) error {
	f, err := os.Open(t.path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() < t.offset { // a restart began it anew
		t.offset = 0
	}
	if _, err := f.Seek(t.offset, io.SeekStart); err != nil {
		return err
	}
	n, err := io.Copy(out, f)
	t.offset += n
	return err
}

// following copies a workload's output to standard output while it is watched.
type following struct {
	mu    sync.Mutex
	w     api.Workload
	tails map[int]*tail
	out   *lineWriter
	seen  bool
	app   *app
	end   chan struct{}
	done  chan struct{}
}

// startFollowing follows where the command asked for it; otherwise the result does nothing.
func startFollowing(o waiting, v view, w api.Workload) *following {
	if !o.logs {
		return nil
	}
	f := &following{
		w:     w,
		tails: map[int]*tail{},
		out:   &lineWriter{to: o.app.out, weave: v.weave},
		app:   o.app,
		end:   make(chan struct{}),
		done:  make(chan struct{}),
	}
	go f.run()
	return f
}

func (f *following) update(w api.Workload) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.w = w
}

// finish reads to the end what is there and returns.
func (f *following) finish() {
	if f == nil {
		return
	}
	close(f.end)
	<-f.done
}

func (f *following) run() {
	defer close(f.done)
	tick := time.NewTicker(outputPoll)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			f.copy()
		case <-f.end:
			f.copy()
			f.out.flush()
			f.mu.Lock()
			defer f.mu.Unlock()
			if path, known := outputFile(f.w, 0); !f.seen && known && f.w.Phase.Terminal() {
				f.app.note("there is no output: %s isn't there", path)
			}
			return
		}
	}
}

func (f *following) copy() {
	f.mu.Lock()
	w := f.w
	f.mu.Unlock()
	ranks := 1
	if perRank(w) {
		ranks = w.Size
	}
	for rank := range ranks {
		path, known := outputFile(w, rank)
		if !known {
			return
		}
		t := f.tails[rank]
		if t == nil || t.path != path {
			t = &tail{path: path}
			f.tails[rank] = t
		}
		if perRank(w) {
			f.out.prefix = fmt.Sprintf("%d: ", rank)
		}
		err := t.copy(f.out)
		if perRank(w) {
			f.out.flush()
		}
		if err == nil {
			f.seen = true
		} else if !errors.Is(err, fs.ErrNotExist) {
			f.app.note("reading the output: %v", err)
		}
	}
}

// lineWriter hands whole lines on, so that they can be woven into a bar or given a prefix.
type lineWriter struct {
	to     io.Writer
	weave  func([]byte) bool
	prefix string
	rest   []byte
}

func (l *lineWriter) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	end := bytes.LastIndexByte(l.rest, '\n') + 1
	if end == 0 {
		return len(p), nil
	}
	whole := l.rest[:end]
	if l.prefix != "" {
		whole = append([]byte(l.prefix), bytes.ReplaceAll(whole[:end-1], []byte("\n"), []byte("\n"+l.prefix))...)
		whole = append(whole, '\n')
	}
	err := l.emit(whole)
	l.rest = append([]byte(nil), l.rest[end:]...)
	return len(p), err
}

// flush hands on a last line that has no newline.
func (l *lineWriter) flush() {
	if len(l.rest) > 0 {
		_, _ = l.Write([]byte("\n"))
	}
}

func (l *lineWriter) emit(p []byte) error {
	if l.weave != nil && l.weave(p) {
		return nil
	}
	_, err := l.to.Write(p)
	return err
}
