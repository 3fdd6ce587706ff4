package agent

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/google/renameio/v2"

	"github.com/openai4s/hpc/gateway/wire"
)

// ownVariables are the agent's own and not the command's affair.
var ownVariables = []string{"OPENAI4S_BUNDLE", "OPENAI4S_EPOCH", "OPENAI4S_DEADLINE", "OPENAI4S_WORKER_RANK_ENV", "OPENAI4S_NODENAME"}

// environment is the command's: the scheduler's, the job's own variables and secrets, and the rank's place in the gang.
func (r *rank) environment(o wire.StartOrder) ([]string, error) {
	hosts, err := expand(o.Hosts)
	if err != nil {
		return nil, fmt.Errorf("reading the roster: %w", err)
	}
	hostfile, err := r.hostfile(hosts)
	if err != nil {
		return nil, err
	}
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains(ownVariables, name)
	})
	set := func(name, value string) { env = append(env, name+"="+value) }
	for _, m := range []map[string]string{o.Env, o.Secrets} {
		for _, name := range slices.Sorted(maps.Keys(m)) {
			set(name, m[name])
		}
	}
	for _, prefix := range []string{"OPENAI4S_", ""} {
		set(prefix+"RANK", strconv.Itoa(r.Rank))
		set(prefix+"WORLD_SIZE", strconv.Itoa(o.Size))
		set(prefix+"LOCAL_RANK", strconv.Itoa(o.LocalRank))
	}
	set("OPENAI4S_WORKLOAD", r.head.Workload)
	set("OPENAI4S_NODE_RANK", strconv.Itoa(o.NodeRank))
	set("OPENAI4S_HOSTS", o.Hosts)
	set("OPENAI4S_HOSTFILE", hostfile)
	set(guardVariable, r.task())
	set("MASTER_ADDR", o.MasterAddr)
	set("MASTER_PORT", strconv.Itoa(o.MasterPort))
	return lastWins(env), nil
}

// lastWins drops earlier settings of a name that is set again.
func lastWins(env []string) []string {
	seen := map[string]bool{}
	out := make([]string, 0, len(env))
	for _, kv := range slices.Backward(env) {
		name, _, _ := strings.Cut(kv, "=")
		if !seen[name] {
			seen[name] = true
			out = append(out, kv)
		}
	}
	slices.Reverse(out)
	return out
}

// hostfile leaves the roster in RUN, one name a line, once for the whole gang.
func (r *rank) hostfile(hosts []string) (string, error) {
	path := filepath.Join(r.dir(), "hosts-"+strconv.FormatInt(r.Epoch, 10))
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := renameio.WriteFile(path, []byte(strings.Join(hosts, "\n")+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("writing the host file: %w", err)
	}
	return path, nil
}
