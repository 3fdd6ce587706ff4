package slurm

import (
	"bytes"
	"cmp"
	"context"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/openai4s/hpc/scheduler"
)

// Inspect describes the partitions, and the QoS and accounts of the caller where there is accounting. Only the
// controller's silence is an error; what else can't be found out is a warning.
func (s *System) Inspect(ctx context.Context) (scheduler.Cluster, error) {
	facts, err := s.Facts(ctx)
	if err != nil {
		return scheduler.Cluster{}, err
	}
	c := scheduler.Cluster{Facts: facts}
	parts, err := s.run.ask(ctx, s.limit.query, "scontrol", "--oneliner", "show", "partition")
	if err != nil {
		return scheduler.Cluster{}, noAnswer("asking for the partitions", err)
	}
	nodes, err := s.run.ask(ctx, s.limit.query, "scontrol", "--oneliner", "show", "node")
	if err != nil {
		c.Warnings = append(c.Warnings, "the nodes can't be listed, so their CPUs, memory and GPUs are unknown: "+word(err.Error()))
	}
	c.Partitions = partitions(parts, nodes)
	if !facts.Accounting {
		c.Warnings = append(c.Warnings, "this cluster keeps no accounting: a job that ended longer ago than MinJobAge ("+
			facts.MinJobAge.String()+") can't be looked up any more")
		return c, nil
	}
	s.associations(ctx, &c)
	return c, nil
}

// associations fills in the accounts and QoS that the caller may use.
func (s *System) associations(ctx context.Context, c *scheduler.Cluster) {
	me, err := user.LookupId(strconv.Itoa(os.Getuid()))
	if err != nil {
		c.Warnings = append(c.Warnings, "accounts and QoS are unknown: "+word(err.Error()))
		return
	}
	out, err := s.run.ask(ctx, s.limit.query, "sacctmgr", "--noheader", "--parsable2", "show", "assoc",
		"user="+me.Username, "cluster="+c.Facts.Cluster, "format=Account,QOS")
	if err != nil {
		c.Warnings = append(c.Warnings, "accounts and QoS are unknown: "+word(err.Error()))
		return
	}
	for line := range bytes.Lines(out) {
		account, qos, ok := strings.Cut(strings.TrimSpace(string(line)), "|")
		if !ok {
			continue
		}
		c.Accounts = append(c.Accounts, word(account))
		c.QoS = append(c.QoS, list(qos)...)
	}
	slices.Sort(c.Accounts)
	slices.Sort(c.QoS)
	c.Accounts, c.QoS = slices.Compact(c.Accounts), slices.Compact(c.QoS)
	if len(c.Accounts) == 0 {
		c.Warnings = append(c.Warnings, "user "+me.Username+" may charge no account here")
	}
}

// partitions reads `scontrol --oneliner show partition` and `show node`. A partition's nodes are found by the nodes'
// own word, so that no list of hosts is compared.
func partitions(parts, nodes []byte) []scheduler.PartitionFacts {
	var all []scheduler.PartitionFacts
	for line := range bytes.Lines(parts) {
		p := pairs(string(line))
		if p["PartitionName"] == "" {
			continue
		}
		f := scheduler.PartitionFacts{
			Name:          word(p["PartitionName"]),
			Default:       p["Default"] == "YES",
			Up:            p["State"] == "UP",
			MaxTime:       span(p["MaxTime"]),
			DefaultTime:   span(p["DefaultTime"]),
			AllowQoS:      list(p["AllowQos"]),
			AllowAccounts: list(p["AllowAccounts"]),
		}
		f.Nodes, _ = strconv.Atoi(p["TotalNodes"])
		f.MaxNodes, _ = strconv.Atoi(p["MaxNodes"]) // UNLIMITED: 0
		all = append(all, f)
	}
	for line := range bytes.Lines(nodes) {
		n := pairs(string(line))
		for _, name := range list(n["Partitions"]) {
			for i := range all {
				if all[i].Name == name {
					widen(&all[i], n)
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b scheduler.PartitionFacts) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// widen takes one node of the partition into account.
func widen(p *scheduler.PartitionFacts, node map[string]string) {
	cpus, _ := strconv.Atoi(node["CPUTot"])
	mib, _ := strconv.ParseInt(node["RealMemory"], 10, 64)
	p.CPUsPerNode = max(p.CPUsPerNode, cpus)
	if mib > 0 && mib < 1<<40 {
		p.MemoryPerNode = max(p.MemoryPerNode, mib<<20)
	}
	count, types := gpus(node["Gres"])
	p.GPUsPerNode = max(p.GPUsPerNode, count)
	for _, t := range types {
		if !slices.Contains(p.GPUTypes, t) {
			p.GPUTypes = append(p.GPUTypes, t)
		}
	}
}

// gpus reads Gres: gpu:4, gpu:a100:4(S:0-1), gpu:a100:2,gpu:v100:2.
func gpus(gres string) (count int, types []string) {
	depth := 0
	for _, g := range strings.FieldsFunc(gres, func(r rune) bool {
		switch r { // a comma inside of (S:0,2) parts nothing
		case '(':
			depth++
		case ')':
			depth--
		}
		return r == ',' && depth <= 0
	}) {
		g, _, _ = strings.Cut(g, "(")
		f := strings.Split(g, ":")
		if f[0] != "gpu" || len(f) < 2 {
			continue
		}
		n, err := strconv.Atoi(f[len(f)-1])
		if err != nil || n < 0 || n > 1<<16 {
			continue
		}
		count += n
		if len(f) > 2 {
			types = append(types, word(f[1]))
		}
	}
	return count, types
}

// pairs reads "Key=Value Key=Value …". A value with blanks keeps its first word only; none that is read here has any.
func pairs(line string) map[string]string {
	m := map[string]string{}
	for _, f := range strings.Fields(line) {
		if k, v, ok := strings.Cut(f, "="); ok {
			if _, seen := m[k]; !seen {
				m[k] = v
			}
		}
	}
	return m
}

// list splits at commas; ALL, N/A and (null) are no restriction: nil.
func list(s string) []string {
	if s == "" || s == "ALL" || s == "N/A" || s == "(null)" {
		return nil
	}
	var all []string
	for _, v := range strings.Split(s, ",") {
		if v = word(v); v != "" {
			all = append(all, v)
		}
	}
	return all
}

// span reads Slurm's D-HH:MM:SS; UNLIMITED, NONE and whatever else is no span are 0.
func span(s string) time.Duration {
	days, rest, hasDays := strings.Cut(s, "-")
	if !hasDays {
		days, rest = "0", s
	}
	f := strings.Split(rest, ":")
	if len(f) != 3 {
		return 0
	}
	var n [4]int64
	for i, v := range append([]string{days}, f...) {
		var err error
		if n[i], err = strconv.ParseInt(v, 10, 32); err != nil || n[i] < 0 || n[i] > 100_000 {
			return 0
		}
	}
	return time.Duration(n[0])*24*time.Hour + time.Duration(n[1])*time.Hour + time.Duration(n[2])*time.Minute + time.Duration(n[3])*time.Second
}
