package fakeslurm

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Job of the cluster. State and Reason are Slurm's words.
type Job struct {
	ID       int
	Serial   int // its first ID, by which its supervisor knows it
	Name     string
	User     string
	UID      int
	State    string
	Reason   string
	Nodes    int
	Restarts int
	Walltime time.Duration // 0: none
	Submit   time.Time
	Start    time.Time
	End      time.Time
	Code     int // of the script
	Signal   int // that ended it
	Killer   int // uid that cancelled it
	Group    int // process group of the script
	Options  map[string]string
	// Supervised: a process of ours watches over it.
	Supervised bool
	Gone       bool // squeue has forgotten it, however young it is
}

// over tells whether the job has ended.
func (j Job) over() bool {
	switch j.State {
	case "PENDING", "RUNNING", "COMPLETING", "SUSPENDED", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT":
		return false
	}
	return true
}

const none = "None"

// sbatch takes a job and starts it at once, if its nodes exist and nothing holds it.
func (c *command) sbatch() int {
	script, err := io.ReadAll(os.Stdin)
	if err != nil {
		return say(1, "sbatch: error: %v", err)
	}
	if !bytes.HasPrefix(script, []byte("#!")) {
		return say(1, "sbatch: error: This does not look like a batch script.  The first\nsbatch: error: line must start with #! followed by the path to an interpreter.\nsbatch: error: For instance: #!/bin/sh")
	}
	fromCommandLine := c.options
	c.options = map[string]string{}
	if code := c.parse(directives(script)); code != 0 {
		return code
	}
	for k, v := range fromCommandLine {
		c.options[k] = v
	}
	if p := c.options["partition"]; p != "" && p != "main" && p != "short" {
		return say(1, "sbatch: error: invalid partition specified: %s\nsbatch: error: Batch job submission failed: Invalid partition name specified", p)
	}
	nodes := 1
	if v := c.options["nodes"]; v != "" {
		if nodes, err = strconv.Atoi(v); err != nil || nodes < 1 {
			return say(255, "sbatch: error: Invalid node count specification: %s", v)
		}
	}
	minutes := 10
	if v, ok := c.options["time"]; ok {
		if minutes, ok = inMinutes(v); !ok {
			return say(255, "sbatch: error: Invalid --time specification")
		}
	}
	var id int
	code := 0
	c.with(func(s *cluster) {
		if s.Options.Enforce && nodes > s.Options.Nodes {
			code = say(1, "sbatch: error: Batch job submission failed: Requested node configuration is not available")
			return
		}
		id = s.Next
		s.Next++
		j := Job{ID: id, Serial: id, Name: c.options["job-name"], User: me(), UID: os.Getuid(), State: "PENDING", Reason: none, Nodes: nodes,
			Walltime: time.Duration(minutes) * s.Options.Minute, Submit: now(), Options: c.options}
		if j.Name == "" {
			j.Name = "sbatch"
		}
		_, hold := c.options["hold"]
		switch {
		case hold:
			j.Reason = "JobHeldUser"
		case nodes > s.Options.Nodes:
			j.Reason = "PartitionConfig"
		case minutes > 60:
			j.Reason = "PartitionTimeLimit"
		default:
			j.State, j.Start = "RUNNING", now()
		}
		s.Jobs = append(s.Jobs, j)
		if err := os.WriteFile(c.script(id), script, 0o644); err != nil {
			code = say(1, "sbatch: error: %v", err)
			return
		}
		if j.State == "RUNNING" {
			code = c.start(id)
			s.job(id).Supervised = code == 0
		}
	})
	if code != 0 {
		return code
	}
	if _, short := c.options["parsable"]; short {
		fmt.Println(id)
	} else {
		fmt.Println("Submitted batch job", id)
	}
	return 0
}

func (c *command) script(id int) string {
	return filepath.Join(c.dir, "jobs", strconv.Itoa(id))
}

// start leaves a supervisor behind that outlives sbatch.
func (c *command) start(id int) int {
	cmd := exec.Command(filepath.Join(c.dir, "bin", supervisor), strconv.Itoa(id))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return say(1, "sbatch: error: %v", err)
	}
	return 0
}

// supervise runs one job's script to its end, or to its walltime, and writes down how it ended.
func (c *command) supervise() int {
	signal.Ignore(syscall.SIGHUP)
	id, err := strconv.Atoi(c.args[0])
	if err != nil {
		return 64
	}
	var job Job
	var killWait time.Duration
	c.with(func(s *cluster) { job, killWait = *s.bySerial(id), s.Options.KillWait })
	cmd := exec.Command("/bin/sh", c.script(id))
	cmd.Dir = job.Options["chdir"]
	cmd.Env = append(os.Environ(), "SLURM_JOB_ID="+strconv.Itoa(id), "SLURM_JOB_NAME="+job.Name, "SLURM_CLUSTER_NAME=fake",
		"SLURM_JOB_NODELIST="+nodeList(job.Nodes), "SLURMD_NODENAME=n1", "SLURM_RESTART_COUNT="+strconv.Itoa(job.Restarts))
	if out := job.Options["output"]; out != "" {
		out = strings.ReplaceAll(out, "%j", strconv.Itoa(id))
		if !filepath.IsAbs(out) {
			out = filepath.Join(cmd.Dir, out)
		}
		file, err := os.OpenFile(out, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			c.finish(id, "FAILED", 0, 53)
			return 0
		}
		defer file.Close()
		cmd.Stdout, cmd.Stderr = file, file
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		c.finish(id, "FAILED", 0, 53)
		return 0
	}
	cancelled := false
	c.with(func(s *cluster) {
		j := s.bySerial(id)
		j.Group = cmd.Process.Pid
		cancelled = j.Killer != 0
	})
	if cancelled { // between its start and this line
		syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
	}
	ended := make(chan struct{})
	go func() {
		cmd.Wait()
		close(ended)
	}()
	state := ""
	select {
	case <-ended:
	case <-time.After(job.Walltime):
		state = "TIMEOUT"
		syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(killWait):
			syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			<-ended
		}
	}
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	c.finish(id, state, max(status.ExitStatus(), 0), map[bool]int{true: int(status.Signal())}[status.Signaled()])
	return 0
}

// finish writes a job's end down; state "" is told by how the script ended.
func (c *command) finish(id int, state string, code, sig int) {
	c.with(func(s *cluster) {
		j := s.bySerial(id)
		j.End, j.Code, j.Signal, j.Group, j.Supervised = now(), code, sig, 0, false
		switch {
		case state != "":
			j.State = state
		case j.Killer != 0:
			j.State = "CANCELLED"
		case code == 0 && sig == 0:
			j.State = "COMPLETED"
		default:
			j.State = "FAILED"
		}
		switch {
		case j.State == "TIMEOUT":
			j.Reason = "TimeLimit"
		case j.State == "FAILED" && sig == 53, j.State == "FAILED" && sig != 0:
			j.Reason = "JobLaunchFailure"
		case j.State == "FAILED":
			j.Reason = "NonZeroExitCode"
		default:
			j.Reason = none
		}
	})
}

// scancel sends TERM, and KILL after KillWait. A job that isn't there, or is over, is no error.
func (c *command) scancel() int {
	for _, a := range c.args {
		id, err := strconv.Atoi(a)
		if err != nil {
			return say(1, "scancel: error: Invalid job id %s", a)
		}
		group, wait, denied := 0, time.Duration(0), false
		c.with(func(s *cluster) {
			j := s.job(id)
			if j == nil || j.over() {
				return
			}
			if denied = j.UID != os.Getuid() && os.Getuid() != 0; denied {
				return
			}
			// Root's own number is no mark; 0 stands for "not cancelled".
			j.Killer = os.Getuid() + 1
			if j.State == "PENDING" {
				j.State, j.End = "CANCELLED", now()
				return
			}
			j.State = "COMPLETING"
			group, wait = j.Group, s.Options.KillWait
		})
		if denied {
			return say(210, "scancel: error: Kill job error on job id %d: Access/permission denied", id)
		}
		if group > 0 {
			syscall.Kill(-group, syscall.SIGCONT)
			syscall.Kill(-group, syscall.SIGTERM)
			// The real one leaves the KILL to slurmd; a child of ours does it, so that scancel doesn't wait.
			kill := exec.Command("/bin/sh", "-c", fmt.Sprintf("sleep %f; kill -KILL -%d 2>/dev/null", wait.Seconds(), group))
			kill.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			kill.Start()
		}
	}
	return 0
}

// directives are the options of the #SBATCH lines before the first command.
func directives(script []byte) []string {
	var all []string
	for lines := bufio.NewScanner(bytes.NewReader(script)); lines.Scan(); {
		line := lines.Text()
		if rest, ok := strings.CutPrefix(line, "#SBATCH "); ok {
			all = append(all, strings.TrimSpace(strings.ReplaceAll(rest, `"`, "")))
		} else if line != "" && !strings.HasPrefix(line, "#") {
			break
		}
	}
	return all
}

// inMinutes reads MM, HH:MM:SS and D-HH:MM:SS.
func inMinutes(s string) (int, bool) {
	days := 0
	if d, rest, ok := strings.Cut(s, "-"); ok {
		n, err := strconv.Atoi(d)
		if err != nil {
			return 0, false
		}
		days, s = n, rest
	}
	f := strings.Split(s, ":")
	n := make([]int, len(f))
	for i, v := range f {
		var err error
		if n[i], err = strconv.Atoi(v); err != nil {
			return 0, false
		}
	}
	switch len(n) {
	case 1:
		return days*24*60 + n[0], true
	case 3:
		return days*24*60 + n[0]*60 + n[1], true
	}
	return 0, false
}

func now() time.Time { return time.Now().UTC().Truncate(time.Second) }

func nodeList(n int) string {
	if n == 1 {
		return "n1"
	}
	return fmt.Sprintf("n[1-%d]", n)
}
