package pbs

import (
	"context"
	"encoding/json"
	"fmt"
	"os/user"
	"strconv"
	"strings"
	"time"

	"github.com/openai4s/hpc/scheduler"
)

// defaultKillDelay lies between TERM and KILL of a queue that sets none.
const defaultKillDelay = 10 * time.Second

// object is an entity of the JSON forms. Numbers, texts and the server's "True" are all read by the methods below.
type object map[string]any

// status is the JSON form of qstat -B, qstat -Q and pbsnodes.
type status struct {
	Version string            `json:"pbs_version"`
	Server  string            `json:"pbs_server"`
	Servers map[string]object `json:"Server"`
	Queues  map[string]object `json:"Queue"`
	Nodes   map[string]object `json:"nodes"`
}

// show runs a command that prints the JSON form. A command in error prints valid JSON as well, without what was
// asked for: its exit code decides.
func (s *System) show(ctx context.Context, name string, args ...string) (status, error) {
	res, err := s.ask(ctx, name, args...)
	if err != nil {
		return status{}, err
	}
	if res.code != 0 {
		return status{}, res.failure()
	}
	var st status
	if err := json.Unmarshal(res.stdout, &st); err != nil {
		return status{}, fmt.Errorf("%w: reading the output of %s: %w", scheduler.ErrNoAnswer, res.command, err)
	}
	return st, nil
}

// Facts reads the server's and the queues' settings.
func (s *System) Facts(ctx context.Context) (scheduler.Facts, error) {
	if _, err := s.supported(ctx); err != nil {
		return scheduler.Facts{}, err
	}
	facts, _, err := s.serverFacts(ctx)
	if err != nil {
		return scheduler.Facts{}, err
	}
	queues, err := s.show(ctx, "qstat", "-Q", "-f", "-F", "json")
	if err != nil {
		return scheduler.Facts{}, err
	}
	facts.KillDelay = killDelay(queues.Queues)
	return facts, nil
}

func (s *System) serverFacts(ctx context.Context) (scheduler.Facts, object, error) {
	st, err := s.show(ctx, "qstat", "-B", "-f", "-F", "json")
	if err != nil {
		return scheduler.Facts{}, nil, err
	}
	server := st.Servers[st.Server]
	for _, only := range st.Servers {
		if server == nil {
			server = only
		}
	}
	if server == nil {
		return scheduler.Facts{}, nil, fmt.Errorf("%w: qstat -B names no server", scheduler.ErrNoAnswer)
	}
	history := server.flag("job_history_enable", false)
	s.setHistoryOff(!history)
	facts := scheduler.Facts{
		Version:    oneLine(st.Version),
		Cluster:    oneLine(st.Server),
		Accounting: history,
		SeesOthers: server.flag("query_other_jobs", true) || isManager(server),
	}
	if history {
		facts.MinJobAge = seconds(server.text("job_history_duration"), 14*24*time.Hour)
	}
	return facts, server, nil
}

// killDelay is the shortest of the queues that run jobs, since a job may end up in any.
func killDelay(queues map[string]object) time.Duration {
	shortest := time.Duration(-1)
	for _, q := range queues {
		if q.text("queue_type") != "Execution" {
			continue
		}
		if d := seconds(q.text("kill_delay"), defaultKillDelay); shortest < 0 || d < shortest {
			shortest = d
		}
	}
	if shortest < 0 {
		return defaultKillDelay
	}
	return shortest
}

// isManager tells whether the calling user is a manager or operator of the server, who sees every job.
func isManager(server object) bool {
	me, err := user.Current()
	if err != nil {
		return false
	}
	for _, list := range []string{"managers", "operators"} {
		for entry := range strings.SplitSeq(server.text(list), ",") {
			if owner(strings.TrimSpace(entry)) == me.Username {
				return true
			}
		}
	}
	return false
}

// text returns a value as the server's text: "" for none, digits for a number.
func (o object) text(name string) string {
	switch v := o[name].(type) {
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case bool:
		return strconv.FormatBool(v)
	}
	return ""
}

func (o object) flag(name string, absent bool) bool {
	if _, said := o[name]; !said {
		return absent
	}
	return strings.EqualFold(o.text(name), "true") || o.text(name) == "1"
}

// sub returns an object inside, such as resources_max; never nil to read from.
func (o object) sub(name string) object {
	m, _ := o[name].(map[string]any)
	return m
}

func (o object) number(name string) int {
	n, err := strconv.Atoi(o.text(name))
	if err != nil {
		return 0
	}
	return max(n, 0)
}

// seconds reads a duration of PBS, "90", "01:30" or "hhh:mm:ss".
func seconds(text string, absent time.Duration) time.Duration {
	if text == "" {
		return absent
	}
	var total int64
	for part := range strings.SplitSeq(text, ":") {
		n, err := strconv.ParseInt(strings.TrimSpace(part), 10, 32)
		if err != nil || n < 0 || total > 1<<32 {
			return absent
		}
		total = total*60 + n
	}
	return time.Duration(total) * time.Second
}
