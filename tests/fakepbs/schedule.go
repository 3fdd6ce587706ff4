package fakepbs

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// used counts what running jobs have of a host.
func (s *server) used(host string) (cpus, gpus int) {
	for _, j := range s.jobs {
		if j.state != "R" && j.state != "E" {
			continue
		}
		for _, sl := range j.slots {
			if sl.host == host {
				cpus += sl.chunk.ncpus
				gpus += sl.chunk.gpus
			}
		}
	}
	return cpus, gpus
}

func (s *server) jobsOn(host string) []string {
	var ids []string
	for _, j := range s.jobs {
		if (j.state == "R" || j.state == "E") && slices.Contains(j.hosts(), host) {
			ids = append(ids, j.id())
		}
	}
	return ids
}

// placeJob finds hosts for a queued job, or says why there are none.
func (s *server) placeJob(j *job) ([]slot, string) {
	scatter := strings.HasPrefix(j.place, "scatter")
	pack := strings.HasPrefix(j.place, "pack")
	total, cpus := 0, 0
	for _, c := range j.chunks {
		total += c.count
		cpus += c.count * c.ncpus
	}
	all := len(s.config.Hosts) * s.config.CPUs
	if scatter && total > len(s.config.Hosts) {
		return nil, "Can Never Run: Not enough total nodes available"
	}
	if cpus > all {
		return nil, fmt.Sprintf("Can Never Run: Insufficient amount of resource: ncpus (R: %d A: %d T: %d)", cpus, all, all)
	}
	if why := s.never(j); why != "" {
		return nil, "Can Never Run: Insufficient amount of resource: " + why
	}
	type room struct{ cpus, gpus, index int }
	free := map[string]*room{}
	freeCPUs := 0
	for _, h := range s.config.Hosts {
		if s.down[h] {
			continue
		}
		c, g := s.used(h)
		free[h] = &room{cpus: s.config.CPUs - c, gpus: s.config.GPUs - g, index: c}
		freeCPUs += s.config.CPUs - c
	}
	var slots []slot
	for _, c := range j.chunks {
		for range c.count {
			placed := false
			for _, h := range s.config.Hosts {
				r := free[h]
				taken := slices.ContainsFunc(slots, func(sl slot) bool { return sl.host == h })
				switch {
				case r == nil, c.host != "" && c.host != h, scatter && taken, r.cpus < c.ncpus, r.gpus < c.gpus:
					continue
				case pack && len(slots) > 0 && !taken:
					continue
				}
				slots = append(slots, slot{host: h, index: r.index, chunk: c})
				r.cpus, r.gpus, r.index = r.cpus-c.ncpus, r.gpus-c.gpus, r.index+1
				placed = true
				break
			}
			if placed {
				continue
			}
			switch {
			case c.host != "":
				return nil, "Not Running: Insufficient amount of resource: host "
			case cpus > freeCPUs:
				return nil, fmt.Sprintf("Not Running: Insufficient amount of resource: ncpus (R: %d A: %d T: %d)", cpus, freeCPUs, all)
			case c.gpus > s.config.GPUs:
				return nil, "Not Running: Insufficient amount of resource: ngpus "
			}
			return nil, "Not Running: Insufficient amount of resource: ncpus "
		}
	}
	return slots, ""
}

// never says what of a job no host could ever have, "" for nothing.
func (s *server) never(j *job) string {
	var kb int64
	for _, c := range j.chunks {
		kb += int64(c.count) * c.memKB
		switch {
		case c.host != "" && !slices.Contains(s.config.Hosts, c.host):
			return fmt.Sprintf("host (%s != %s)", c.host, strings.Join(s.config.Hosts, ","))
		case c.arch != "" && c.arch != arch:
			return fmt.Sprintf("arch (%s != %s)", c.arch, arch)
		}
	}
	if all := int64(len(s.config.Hosts)) * s.config.MemKB; kb > all {
		return fmt.Sprintf("mem (R: %s A: %dmb T: %dmb)", totalMem(j.chunks), all>>10, all>>10)
	}
	return ""
}

// maxTries is how often a job that can't be started is tried before it is held.
const maxTries = 21

// advance is the server's, the scheduler's and the hosts' work of one moment.
func (s *server) advance(now time.Time) {
	for _, j := range s.jobs {
		switch j.state {
		case "Q":
			if q, _ := queueNamed(j.queue); q.stopped {
				j.comment = "Not Running: Queue not started."
				continue
			}
			if now.Before(j.next) || s.config.SchedulingOff {
				continue
			}
			slots, why := s.placeJob(j)
			if why != "" {
				if j.comment != why {
					j.comment = why
				}
				continue
			}
			s.start(j, slots, now)
		case "R":
			s.watch(j, now)
		case "E":
			if now.After(j.doneAt) {
				s.finish(j, now)
			}
		}
	}
}

// watch looks after a running job.
func (s *server) watch(j *job, now time.Time) {
	switch {
	case !j.lostAt.IsZero():
		if now.Sub(j.lostAt) > s.config.NodeFailRequeue {
			s.firstNodeLost(j, now)
		}
	case !j.killAt.IsZero() && now.After(j.killAt):
		s.signal(j, 9)
	case j.ending == "" && j.wall > 0 && now.Sub(j.started) > j.wall:
		j.ending = "walltime"
		s.tell(j, fmt.Sprintf("=>> PBS: job killed: walltime %d exceeded limit %d\n", int(now.Sub(j.started)/time.Second), int(j.wall/time.Second)))
		s.signal(j, 15)
		j.killAt = now.Add(s.config.KillDelay)
	}
	if j.substate == 41 {
		j.substate = 42
	}
}

// firstNodeLost is the server's discovery that a job's first host is gone.
func (s *server) firstNodeLost(j *job, now time.Time) {
	for _, h := range j.hosts() { // what runs on the others ends with the job
		if !s.down[h] {
			s.endTasks(j, h)
		}
	}
	code := -20
	j.exit, j.obit, j.modified, j.lostAt = &code, now, now, time.Time{}
	if !j.rerun {
		j.state, j.substate, j.finished = "F", 93, now
		return
	}
	j.state, j.substate, j.slots, j.tasks, j.started = "Q", 10, nil, nil, time.Time{}
	j.killAt, j.ending = time.Time{}, ""
}

// delete ends a job for a user.
func (s *server) delete(j *job, by string, force bool) {
	now := time.Now()
	j.modified = now
	switch {
	case j.running() && force:
		for _, h := range j.hosts() {
			if !s.down[h] {
				s.endTasks(j, h)
			}
		}
		j.state, j.substate, j.obit, j.finished, j.usedTime = "F", 91, now, now, true
		j.comment += " and terminated"
	case j.running():
		j.ending, j.by = "deleted", by
		s.signal(j, 15)
		if j.killAt.IsZero() {
			j.killAt = now.Add(s.config.KillDelay)
		}
	case j.state == "E":
	default:
		j.state, j.substate, j.finished = "F", 91, now
		if j.comment != "" {
			j.comment += " and terminated"
		}
	}
}

// scriptEnded is the end of a job's script.
func (s *server) scriptEnded(j *job, code int) {
	now := time.Now()
	for _, h := range j.hosts() {
		if !s.down[h] {
			s.endTasks(j, h)
		}
	}
	switch j.ending {
	case "deleted":
		code = 256 + 15
	case "walltime":
		code = -29
	}
	j.state, j.substate, j.exit, j.obit, j.usedTime = "E", 51, &code, now, true
	j.doneAt = now.Add(s.config.EndDelay)
}

// finish writes a job's history.
func (s *server) finish(j *job, now time.Time) {
	j.state, j.substate, j.finished, j.modified = "F", 93, now, now
	j.staged = "1"
	sisterDown := slices.ContainsFunc(j.hosts(), func(h string) bool { return s.down[h] })
	switch {
	case j.ending == "deleted":
		if !sisterDown {
			j.substate = 91
		}
		j.comment += " and terminated by " + j.by + "@" + serverHost
	case j.ending == "walltime":
		j.comment += " and exceeded resource walltime"
	case *j.exit == 0:
		j.substate = 92
		j.comment += " and finished"
	default:
		j.comment += " and failed"
	}
	if !strings.Contains(j.keep, "d") && !s.deliver(j) {
		j.staged = "0"
	}
}
