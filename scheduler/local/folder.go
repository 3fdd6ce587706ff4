package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

// keep is how long a job can be looked up after its end.
const keep = 7 * 24 * time.Hour

// folder is one job's, absolute.
type folder string

func (f folder) id() string     { return filepath.Base(string(f)) }
func (f folder) script() string { return filepath.Join(string(f), "script") }
func (f folder) log() string    { return filepath.Join(string(f), "supervisor.log") }

// spec is what was submitted; it never changes.
type spec struct {
	Name      string    `json:"name"`
	UID       int       `json:"uid"`
	User      string    `json:"user"`
	Host      string    `json:"host"` // the machine the job runs on
	Submitted time.Time `json:"submitted"`
	Options   options   `json:"options"`
}

// The words of a state.
const (
	running   = "RUNNING"
	completed = "COMPLETED"
	failed    = "FAILED"
	timeout   = "TIMEOUT"
	cancelled = "CANCELLED"
	nodeFail  = "NODE_FAIL" // never written: the supervisor is gone without a word
	pending   = "PENDING"   // never written: there is no state yet
)

// state is the supervisor's word.
type state struct {
	Word       string    `json:"word"`
	Supervisor int       `json:"supervisor,omitempty"` // its process id, good as long as it holds the lock
	Started    time.Time `json:"started,omitzero"`
	Ended      time.Time `json:"ended,omitzero"`
	ExitCode   *int      `json:"exit_code,omitempty"` // of the script; none if a signal ended it, or it never ran
	Signal     int       `json:"signal,omitempty"`    // that ended the script
	Message    string    `json:"message,omitempty"`
}

// over tells whether a state is final.
func (s state) over() bool { return s.Word != pending && s.Word != running }

func newSpec(f folder, name string, o options) spec {
	s := spec{Name: name, UID: os.Getuid(), Submitted: time.Now(), Options: o}
	s.User = strconv.Itoa(s.UID)
	if u, err := user.Current(); err == nil {
		s.User = u.Username
	}
	s.Host, _ = os.Hostname()
	return s
}

func (f folder) writeSpec(s spec) error { return f.write("spec.json", s) }

func (f folder) writeState(s state) error { return f.write("state.json", s) }

func (f folder) write(name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encoding %s of job %s: %w", name, f.id(), err)
	}
	if err := renameio.WriteFile(filepath.Join(string(f), name), data, 0o600); err != nil {
		return fmt.Errorf("writing %s of job %s: %w", name, f.id(), err)
	}
	return nil
}

// readSpec returns fs.ErrNotExist for what is no job.
func (f folder) readSpec() (spec, error) {
	var s spec
	return s, f.read("spec.json", &s)
}

// readState is PENDING where the supervisor has said nothing yet.
func (f folder) readState() (state, error) {
	var s state
	err := f.read("state.json", &s)
	if errors.Is(err, fs.ErrNotExist) {
		return state{Word: pending}, nil
	}
	return s, err
}

func (f folder) read(name string, v any) error {
	data, err := os.ReadFile(filepath.Join(string(f), name))
	if err != nil {
		return fmt.Errorf("reading %s of job %s: %w", name, f.id(), err)
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("decoding %s of job %s: %w", name, f.id(), err)
	}
	return nil
}

// lock takes the job's lock, for its supervisor.
func (f folder) lock() (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(string(f), "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock of job %s: %w", f.id(), err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		file.Close()
		return nil, fmt.Errorf("locking job %s: %w", f.id(), err)
	}
	return file, nil
}

// supervised tells whether somebody holds the job's lock.
func (f folder) supervised() (bool, error) {
	file, err := os.Open(filepath.Join(string(f), "lock"))
	if err != nil {
		return false, fmt.Errorf("opening the lock of job %s: %w", f.id(), err)
	}
	defer file.Close()
	err = unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("asking for the lock of job %s: %w", f.id(), err)
	}
	return false, nil
}

// logTail is the end of the supervisor's log.
func (f folder) logTail() string {
	data, err := os.ReadFile(f.log())
	if err != nil {
		return err.Error()
	}
	return printable(string(data[max(0, len(data)-maxText):]))
}

// number is the number that an id stands for, 0 for what is no id.
func number(id string) int64 {
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil || n < 1 || strconv.FormatInt(n, 10) != id {
		return 0
	}
	return n
}

// create makes the folder of the next id.
func (s *System) create() (folder, error) {
	ids, err := s.ids()
	if err != nil {
		return "", err
	}
	next := int64(1)
	if len(ids) > 0 {
		next = ids[len(ids)-1] + 1
	}
	for ; ; next++ {
		f := folder(filepath.Join(s.dir, strconv.FormatInt(next, 10)))
		err := os.Mkdir(string(f), 0o700)
		switch {
		case err == nil:
			return f, nil
		case !errors.Is(err, fs.ErrExist):
			return "", fmt.Errorf("making the job's folder: %w", err)
		}
	}
}

// ids lists the numbers of all folders, rising; none where the scheduler was never used.
func (s *System) ids() ([]int64, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing the local scheduler's jobs: %w", err)
	}
	var ids []int64
	for _, e := range entries {
		if n := number(e.Name()); n > 0 {
			ids = append(ids, n)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// prune removes the jobs that ended long ago. The last id stays, so that none is ever given twice.
func (s *System) prune(now time.Time) {
	ids, err := s.ids()
	if err != nil || len(ids) == 0 {
		return
	}
	for _, id := range ids[:len(ids)-1] {
		f := folder(filepath.Join(s.dir, strconv.FormatInt(id, 10)))
		if ended, over := f.ended(); over && now.Sub(ended) > keep {
			_ = os.RemoveAll(string(f)) // the next submission tries again
		}
	}
}

// ended tells when a job, or what was to become one, came to its end.
func (f folder) ended() (time.Time, bool) {
	if st, err := f.readState(); err == nil && st.over() {
		return st.Ended, true
	}
	info, err := os.Stat(string(f)) // changed when the last file was renamed into it
	if err != nil {
		return time.Time{}, false
	}
	alive, err := f.supervised()
	if errors.Is(err, fs.ErrNotExist) {
		return info.ModTime(), true
	}
	return info.ModTime(), err == nil && !alive
}
