package fakepbs

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

func zoneOf(req request) *time.Location {
	if loc, err := time.LoadLocation(req.Env["TZ"]); err == nil && req.Env["TZ"] != "" {
		return loc
	}
	return time.Local
}

// unreachable is what a command says of a server that it can't talk to.
func unreachable(name string, args []string, reason string) reply {
	r := reply{Stderr: []byte(reason + "\n" + name + ": cannot connect to server " + serverHost + " (errno=15010)\n"), Code: 162}
	switch name {
	case "qstat":
		r.Code = 255
		if slices.Contains(args, "json") {
			r.Stdout = []byte(document(time.Now().Unix()))
		}
	case "pbsnodes":
		r.Code = 1
		r.Stderr = []byte(reason + "\npbsnodes: cannot connect to server " + serverHost + ", error=15010\n")
	case "qdel":
		r.Stderr = []byte(reason + "\nCouldn't connect to cluster: " + serverHost + "\n")
	}
	return r
}

// visible tells whether the caller is shown a job.
func (s *server) visible(req request, j *job) bool {
	return !s.config.HideOthers || j.owner == req.User
}

// lookup finds a job by an id with or without the server's name.
func (s *server) lookup(id string) *job {
	num, host, _ := strings.Cut(id, ".")
	if host != "" && host != serverHost {
		return nil
	}
	for _, j := range s.jobs {
		if strconv.Itoa(j.num) == num {
			return j
		}
	}
	return nil
}

// isJobID tells whether qstat takes a word for a job; it takes any other for a queue.
func isJobID(word string) bool { return word != "" && word[0] >= '0' && word[0] <= '9' }

// fullID is an id as the commands repeat it.
func fullID(id string) string {
	if strings.Contains(id, ".") {
		return id
	}
	return id + "." + serverHost
}

// qstat answers about jobs, the server and queues.
func (s *server) qstat(req request) reply {
	var history, full, asJSON, aboutServer, aboutQueues bool
	var ids []string
	for i := 0; i < len(req.Args); i++ {
		switch a := req.Args[i]; a {
		case "-x", "-H":
			history = true
		case "-f":
			full = true
		case "-B":
			aboutServer = true
		case "-Q":
			aboutQueues = true
		case "-xf", "-fx":
			history, full = true, true
		case "-Bf":
			aboutServer, full = true, true
		case "-F":
			i++
			asJSON = i < len(req.Args) && req.Args[i] == "json"
		default:
			if strings.HasPrefix(a, "-") {
				return reply{Stderr: []byte("qstat: invalid option -- '" + strings.TrimLeft(a, "-") + "'\n"), Code: 2}
			}
			ids = append(ids, a)
		}
	}
	now := time.Now().Unix()
	switch {
	case aboutServer:
		return reply{Stdout: []byte(document(now, s.serverNode()))}
	case aboutQueues:
		return reply{Stdout: []byte(document(now, s.queuesNode()))}
	}
	var r reply
	var shown []*job
	if len(ids) == 0 {
		for _, j := range s.jobs {
			if (j.live() || history && s.config.History) && s.visible(req, j) {
				shown = append(shown, j)
			}
		}
	}
	for _, id := range ids {
		complain := func(code int, format string) {
			r.Stderr = fmt.Appendf(r.Stderr, "qstat: "+format+"\n", fullID(id))
			r.Code = code
		}
		j := s.lookup(id)
		switch {
		case !isJobID(id):
			r.Stderr = fmt.Appendf(r.Stderr, "qstat: Unknown queue destination %s\n", id)
			r.Code = 170
		case history && !s.config.History:
			complain(r.Code, "PBS is not configured to maintain job history %s")
		case j == nil, !j.live() && !s.config.History:
			complain(153, "Unknown Job Id %s")
		case !s.visible(req, j):
		case !j.live() && !history:
			complain(35, "%s Job has finished, use -x or -H to obtain historical job information")
		default:
			shown = append(shown, j)
		}
	}
	zone := zoneOf(req)
	if asJSON {
		var members []jsonNode
		if len(shown) > 0 {
			if len(ids) > 0 {
				shown = shown[:1] // of several ids, the JSON form prints the first that there is
			}
			jobs := jsonNode{name: "Jobs", open: true}
			for _, j := range shown {
				jobs.members = append(jobs.members, jobNode(j.id(), j.fields(zone)))
			}
			members = append(members, jobs)
		}
		r.Stdout = []byte(document(now, members...))
		return r
	}
	for _, j := range shown {
		if full {
			r.Stdout = append(r.Stdout, textForm(j.id(), j.fields(zone))...)
		} else {
			r.Stdout = fmt.Appendf(r.Stdout, "%-17s %-16s %-15s %8s %s %s\n", j.id(), j.name, j.owner, "0", j.state, j.queue)
		}
	}
	return r
}

// qselect lists ids by name, owner, account or queue.
func (s *server) qselect(req request) reply {
	var history, finished bool
	match := map[string]string{}
	for i := 0; i < len(req.Args); i++ {
		switch a := req.Args[i]; a {
		case "-x":
			history = true
		case "-H":
			history, finished = true, true
		case "-u", "-N", "-A", "-q", "-s":
			i++
			if i >= len(req.Args) || a == "-N" && !legalName.MatchString(req.Args[i]) {
				return reply{Stderr: []byte("qselect: illegal " + a + " value\n"), Code: 2}
			}
			match[a] = req.Args[i]
		default:
			return reply{Stderr: []byte("qselect: invalid option -- '" + strings.TrimLeft(a, "-") + "'\n"), Code: 2}
		}
	}
	if history && !s.config.History {
		return reply{Stderr: []byte("qselect: PBS is not configured to maintain job history\n")}
	}
	var r reply
	for _, j := range s.jobs {
		keep := s.visible(req, j) && (j.live() && !finished || !j.live() && history)
		for flag, value := range map[string]string{"-u": j.owner, "-N": j.name, "-A": j.account, "-q": j.queue, "-s": j.state} {
			want, asked := match[flag]
			keep = keep && (!asked || want == value)
		}
		if keep {
			r.Stdout = append(r.Stdout, j.id()+"\n"...)
		}
	}
	return r
}

// qdel ends jobs.
func (s *server) qdel(req request) reply {
	var r reply
	force := false
	for i := 0; i < len(req.Args); i++ {
		id := req.Args[i]
		if id == "-W" {
			i++
			force = i < len(req.Args) && req.Args[i] == "force"
			continue
		}
		if id == "-x" || strings.HasPrefix(id, "-Wforce") {
			force = force || id != "-x"
			continue
		}
		j := s.lookup(id)
		complain := func(code int, text string) {
			r.Stderr = fmt.Appendf(r.Stderr, "qdel: %s %s\n", text, fullID(id))
			r.Code = code
		}
		switch {
		case j == nil, !j.live() && !s.config.History:
			complain(153, "Unknown Job Id")
		case j.owner != req.User && req.User != Manager:
			complain(159, "Unauthorized Request ")
		case !j.live():
			complain(35, "Job has finished")
		case len(j.slots) > 0 && s.down[j.slots[0].host] && !force:
			complain(222, "Server could not connect to MOM")
		default:
			s.delete(j, req.User, force)
		}
	}
	return r
}

// pbsnodes lists hosts.
func (s *server) pbsnodes(req request) reply {
	if slices.Contains(req.Args, "-l") {
		var r reply
		for _, h := range s.config.Hosts {
			if s.down[h] {
				r.Stdout = fmt.Appendf(r.Stdout, "%-20s down node down: communication closed\n", h)
			}
		}
		return r
	}
	nodes := jsonNode{name: "nodes", open: true}
	for _, h := range s.config.Hosts {
		state := "free"
		usedCPU, _ := s.used(h)
		switch {
		case s.down[h]:
			state = "down"
		case usedCPU >= s.config.CPUs:
			state = "job-busy"
		}
		node := jsonNode{name: h, open: true, members: []jsonNode{
			{name: "Mom", text: h}, {name: "ntype", text: "PBS"}, {name: "state", text: state}, {name: "pcpus", text: "2"},
		}}
		if ids := s.jobsOn(h); len(ids) > 0 {
			node.members = append(node.members, jsonNode{name: "jobs", list: ids})
		}
		node.members = append(node.members,
			jsonNode{name: "resources_available", open: true, members: []jsonNode{
				{name: "arch", text: arch}, {name: "host", text: h}, {name: "mem", text: fmt.Sprintf("%dkb", s.config.MemKB)},
				{name: "ncpus", text: strconv.Itoa(s.config.CPUs)}, {name: "ngpus", text: strconv.Itoa(s.config.GPUs)}, {name: "vnode", text: h},
			}},
			jsonNode{name: "resources_assigned", open: true, members: []jsonNode{{name: "ncpus", text: strconv.Itoa(usedCPU)}}})
		if s.down[h] {
			node.members = append(node.members, jsonNode{name: "comment", text: "node down: communication closed"})
		}
		node.members = append(node.members, jsonNode{name: "resv_enable", text: "True"}, jsonNode{name: "sharing", text: "default_shared"},
			jsonNode{name: "license", text: "l"}, jsonNode{name: "last_state_change_time", text: strconv.FormatInt(s.born.Unix(), 10)})
		nodes.members = append(nodes.members, node)
	}
	return reply{Stdout: []byte(document(time.Now().Unix(), nodes))}
}

func truth(b bool) string { return map[bool]string{true: "True", false: "False"}[b] }

func (s *server) serverNode() jsonNode {
	members := []jsonNode{
		{name: "server_state", text: "Active"}, {name: "server_host", text: serverHost}, {name: "scheduling", text: truth(!s.config.SchedulingOff)},
		{name: "total_jobs", text: strconv.Itoa(len(s.jobs))}, {name: "acl_roots", text: Manager + "@" + serverHost}, {name: "managers", text: Manager + "@" + serverHost},
		{name: "default_queue", text: "workq"}, {name: "query_other_jobs", text: truth(!s.config.HideOthers)},
		{name: "resources_default", open: true, members: []jsonNode{{name: "ncpus", text: "1"}}},
		{name: "node_fail_requeue", text: "310"}, {name: "pbs_version", text: version},
	}
	if s.config.History { // unset otherwise
		members = append(members, jsonNode{name: "job_history_enable", text: "True"})
	}
	return jsonNode{name: "Server", open: true, members: []jsonNode{{name: serverHost, open: true, members: members}}}
}

func (s *server) queuesNode() jsonNode {
	all := jsonNode{name: "Queue", open: true}
	for _, q := range queues {
		members := []jsonNode{{name: "queue_type", text: "Execution"}}
		if q.maxWall > 0 {
			members = append(members, jsonNode{name: "resources_max", open: true, members: []jsonNode{{name: "walltime", text: clock(q.maxWall)}}})
		}
		if q.defWall > 0 {
			members = append(members, jsonNode{name: "resources_default", open: true, members: []jsonNode{{name: "walltime", text: clock(q.defWall)}}})
		}
		if s.config.KillDelay != 10*time.Second { // the default isn't shown
			members = append(members, jsonNode{name: "kill_delay", text: strconv.Itoa(int((s.config.KillDelay + time.Second - 1) / time.Second))})
		}
		members = append(members, jsonNode{name: "enabled", text: truth(!q.disabled)}, jsonNode{name: "started", text: truth(!q.stopped)})
		all.members = append(all.members, jsonNode{name: q.name, open: true, members: members})
	}
	return all
}
