package slurm

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"

	"github.com/openai4s/hpc/scheduler"
)

// errNoConfig: scontrol ended well without a configuration.
var errNoConfig = errors.New("scontrol printed no configuration")

// config is `scontrol show config`, "Key = Value" lines.
func (s *System) config(ctx context.Context) (map[string]string, error) {
	out, err := s.run.ask(ctx, s.limit.query, "scontrol", "show", "config")
	if err != nil {
		return nil, err
	}
	conf := parseConfig(out)
	if conf["ClusterName"] == "" {
		return nil, errNoConfig
	}
	return conf, nil
}

// parseConfig reads "Key = Value" lines and skips all others.
func parseConfig(out []byte) map[string]string {
	conf := map[string]string{}
	for line := range bytes.Lines(out) {
		key, value, ok := strings.Cut(string(line), "=")
		key = strings.TrimSpace(key)
		if ok && key != "" && !strings.ContainsAny(key, " \t") {
			conf[key] = strings.TrimSpace(value)
		}
	}
	return conf
}

// hasAccounting: only slurmdbd answers sacct; accounting_storage/none, "(null)" and the old text file don't.
func hasAccounting(conf map[string]string) bool {
	return conf["AccountingStorageType"] == "accounting_storage/slurmdbd"
}

// Facts asks the controller for its configuration.
func (s *System) Facts(ctx context.Context) (scheduler.Facts, error) {
	conf, err := s.config(ctx)
	if err != nil {
		return scheduler.Facts{}, noAnswer("asking for the cluster's configuration", err)
	}
	f := factsOf(conf)
	f.SeesOthers = s.seesOthers(ctx, conf)
	return f, nil
}

func factsOf(conf map[string]string) scheduler.Facts {
	return scheduler.Facts{
		Version:    word(conf["SLURM_VERSION"]),
		Cluster:    word(conf["ClusterName"]),
		KillDelay:  seconds(conf["KillWait"]),
		MinJobAge:  seconds(conf["MinJobAge"]),
		Accounting: hasAccounting(conf),
	}
}

// seconds reads "30 sec".
func seconds(s string) time.Duration {
	n, err := strconv.ParseUint(strings.TrimSuffix(s, " sec"), 10, 31)
	if err != nil {
		return 0
	}
	return time.Duration(n) * time.Second
}

// seesOthers tells whether this uid is surely shown other users' jobs, by the controller and by slurmdbd. Where one of
// them doesn't say, it isn't sure.
func (s *System) seesOthers(ctx context.Context, conf map[string]string) bool {
	hidden := hidesJobs(conf["PrivateData"]) || strings.Contains(conf["MCSParameters"], "privatedata")
	if hasAccounting(conf) {
		out, err := s.run.ask(ctx, s.limit.query, "sacctmgr", "show", "configuration")
		if err != nil {
			return false
		}
		said := false
		for line := range bytes.Lines(out) {
			if key, value, ok := strings.Cut(string(line), "="); ok && strings.TrimSpace(key) == "PrivateData" {
				said = true
				hidden = hidden || hidesJobs(strings.TrimSpace(value))
			}
		}
		if !said {
			return false
		}
	}
	if !hidden {
		return true
	}
	uid := os.Getuid()
	if uid == 0 || strings.HasSuffix(conf["SlurmUser"], "("+strconv.Itoa(uid)+")") {
		return true
	}
	me, err := user.LookupId(strconv.Itoa(uid))
	if err != nil || !hasAccounting(conf) {
		return false
	}
	out, err := s.run.ask(ctx, s.limit.query, "sacctmgr", "--noheader", "--parsable2", "show", "user", "name="+me.Username, "format=User,AdminLevel")
	if err != nil {
		return false
	}
	for line := range bytes.Lines(out) {
		name, level, _ := strings.Cut(strings.TrimSpace(string(line)), "|")
		if name == me.Username && (level == "Operator" || level == "Administrator") {
			return true
		}
	}
	return false
}

// hidesJobs: the value of PrivateData, "none" or a list. An absent one is no word that nothing is hidden.
func hidesJobs(value string) bool {
	if value == "" {
		return true
	}
	for _, v := range strings.Split(value, ",") {
		if v = strings.TrimSpace(strings.ToLower(v)); v == "jobs" || v == "all" {
			return true
		}
	}
	return false
}
