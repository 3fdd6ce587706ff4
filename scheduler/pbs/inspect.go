package pbs

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/openai4s/hpc/scheduler"
)

// Inspect reads the server, its queues and its nodes.
func (s *System) Inspect(ctx context.Context) (scheduler.Cluster, error) {
	if _, err := s.supported(ctx); err != nil {
		return scheduler.Cluster{}, err
	}
	facts, server, err := s.serverFacts(ctx)
	if err != nil {
		return scheduler.Cluster{}, err
	}
	queues, err := s.show(ctx, "qstat", "-Q", "-f", "-F", "json")
	if err != nil {
		return scheduler.Cluster{}, err
	}
	facts.KillDelay = killDelay(queues.Queues)
	cluster := scheduler.Cluster{Facts: facts}
	nodes, err := s.show(ctx, "pbsnodes", "-a", "-F", "json")
	if err != nil {
		cluster.Warnings = append(cluster.Warnings, "the nodes can't be read: "+oneLine(err.Error()))
	}
	if !facts.Accounting {
		cluster.Warnings = append(cluster.Warnings, "job_history_enable is off: a job that ended is forgotten at once, its exit code known only from its ranks")
	}
	if !facts.SeesOthers {
		cluster.Warnings = append(cluster.Warnings, "query_other_jobs is off: this user is not shown other users' jobs, so that a daemon of this user can't follow them")
	}
	for name, q := range queues.Queues {
		if q.text("queue_type") != "Execution" {
			continue
		}
		cluster.Partitions = append(cluster.Partitions, queueFacts(name, q, server, nodes.Nodes))
	}
	slices.SortFunc(cluster.Partitions, func(a, b scheduler.PartitionFacts) int { return strings.Compare(a.Name, b.Name) })
	for name, n := range nodes.Nodes {
		if state := n.text("state"); strings.Contains(state, "down") || strings.Contains(state, "offline") {
			cluster.Warnings = append(cluster.Warnings, fmt.Sprintf("node %s is %s", oneLine(name), oneLine(state)))
		}
	}
	slices.Sort(cluster.Warnings)
	return cluster, nil
}

// queueFacts describes one queue by its own limits and the nodes that serve it.
func queueFacts(name string, q, server object, nodes map[string]object) scheduler.PartitionFacts {
	limits, defaults := q.sub("resources_max"), q.sub("resources_default")
	p := scheduler.PartitionFacts{
		Name:        oneLine(name),
		Default:     server.text("default_queue") == name,
		Up:          q.flag("enabled", false) && q.flag("started", false),
		MaxNodes:    limits.number("nodect"),
		MaxTime:     seconds(limits.text("walltime"), seconds(server.sub("resources_max").text("walltime"), 0)),
		DefaultTime: seconds(defaults.text("walltime"), seconds(server.sub("resources_default").text("walltime"), 0)),
	}
	// Nodes that name a queue serve it alone; one that names none serves every queue that has no nodes of its own.
	var own, common []object
	for _, n := range nodes {
		switch {
		case n.text("queue") == name, n.sub("resources_available").text("Qlist") == name:
			own = append(own, n)
		case n.text("queue") == "":
			common = append(common, n)
		}
	}
	if len(own) == 0 {
		own = common
	}
	hosts := map[string]bool{} // several vnodes may be one host
	for _, n := range own {
		available := n.sub("resources_available")
		host := available.text("host")
		if host == "" {
			host = n.text("Mom")
		}
		hosts[host] = true
		p.CPUsPerNode = max(p.CPUsPerNode, available.number("ncpus"))
		p.GPUsPerNode = max(p.GPUsPerNode, available.number("ngpus"))
		p.MemoryPerNode = max(p.MemoryPerNode, size(available.text("mem")))
	}
	p.Nodes = len(hosts)
	return p
}

// size reads a size of PBS, "24683620kb", "64gb", "2gw", in bytes; 0 where it can't.
func size(text string) int64 {
	text = strings.ToLower(strings.TrimSpace(text))
	unit := int64(1)
	if t, ok := strings.CutSuffix(text, "w"); ok {
		text, unit = t, 8
	} else {
		text = strings.TrimSuffix(text, "b")
	}
	const units = "kmgtp"
	if n := len(text); n > 0 {
		if i := strings.IndexByte(units, text[n-1]); i >= 0 {
			text = text[:n-1]
			unit <<= 10 * (i + 1)
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > (1<<62)/unit {
		return 0
	}
	return n * unit
}
