package fakepbs

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// chunk is a part of select: count times the same resources on one host.
type chunk struct {
	count     int
	ncpus     int
	mpiprocs  int
	gpus      int
	memKB     int64
	memText   string
	host      string
	arch      string
	resources []string // as written, "ncpus=1"
}

// slot is a chunk on a host.
type slot struct {
	host  string
	index int
	chunk chunk
}

// job in the server's books.
type job struct {
	num     int
	name    string
	owner   string // user
	queue   string
	account string
	project string
	shell   string
	umask   string
	group   string
	sel     string
	place   string
	chunks  []chunk
	wall    time.Duration
	join    string
	keep    string
	out     string // of -o, "" for the default
	rerun   bool
	cwd     string
	vars    []string // of -v and -V, "NAME=value"
	env     map[string]string
	script  []byte
	said    string // Submit_arguments

	state    string
	substate int
	hold     string
	comment  string
	exit     *int
	runs     int
	created  time.Time
	modified time.Time
	eligible time.Time
	started  time.Time
	obit     time.Time
	finished time.Time
	session  int
	staged   string
	slots    []slot
	usedTime bool

	cookie string
	tasks  []*task
	next   time.Time // of the next attempt to start
	killAt time.Time // of KILL, once TERM was sent
	ending string    // why it ends: "", "deleted", "walltime"
	by     string    // who deleted it
	lostAt time.Time // the first node, zero while it is there
	doneAt time.Time // of F, once in E
}

func (j *job) id() string { return fmt.Sprintf("%d.%s", j.num, serverHost) }

func (j *job) live() bool { return j.state != "F" }

func (j *job) running() bool { return j.state == "R" }

// hosts in the order of their first slot.
func (j *job) hosts() []string {
	var out []string
	for _, s := range j.slots {
		if !slices.Contains(out, s.host) {
			out = append(out, s.host)
		}
	}
	return out
}

func (j *job) execHost() string {
	var out []string
	for _, s := range j.slots {
		h := fmt.Sprintf("%s/%d", s.host, s.index)
		if s.chunk.ncpus > 1 {
			h += "*" + strconv.Itoa(s.chunk.ncpus)
		}
		out = append(out, h)
	}
	return strings.Join(out, "+")
}

func (j *job) execVnode() string {
	var out []string
	for _, s := range j.slots {
		v := fmt.Sprintf("(%s:ncpus=%d", s.host, s.chunk.ncpus)
		if s.chunk.memKB > 0 {
			v += fmt.Sprintf(":mem=%dkb", s.chunk.memKB)
		}
		if s.chunk.gpus > 0 {
			v += fmt.Sprintf(":ngpus=%d", s.chunk.gpus)
		}
		out = append(out, v+")")
	}
	return strings.Join(out, "+")
}

// outputPath is where the job's output goes, without the host.
func (j *job) outputPath() string {
	if j.out != "" {
		if strings.HasPrefix(j.out, "/") {
			return j.out
		}
		return filepath.Join(j.cwd, j.out)
	}
	return filepath.Join(j.cwd, fmt.Sprintf("%s.o%d", j.name, j.num))
}

func clock(d time.Duration) string {
	s := int(d / time.Second)
	return fmt.Sprintf("%02d:%02d:%02d", s/3600, s/60%60, s%60)
}

// fields are the job's attributes in the server's order, times in zone.
func (j *job) fields(zone *time.Location) []field {
	var out []field
	add := func(name, value string) {
		if value != "" {
			out = append(out, field{name, value})
		}
	}
	stamp := func(name string, t time.Time) {
		if !t.IsZero() {
			out = append(out, field{name, t.In(zone).Format(time.ANSIC)})
		}
	}
	add("Job_Name", j.name)
	add("Job_Owner", j.owner+"@"+serverHost)
	total := chunk{}
	for _, c := range j.chunks {
		total.count += c.count
		total.ncpus += c.count * c.ncpus
		total.mpiprocs += c.count * c.mpiprocs
		total.gpus += c.count * c.gpus
	}
	if j.usedTime {
		used := j.obit.Sub(j.started)
		add("resources_used.cpupercent", "0")
		add("resources_used.cput", "00:00:00")
		add("resources_used.mem", "0kb")
		add("resources_used.ncpus", strconv.Itoa(total.ncpus))
		add("resources_used.vmem", "0kb")
		add("resources_used.walltime", clock(max(used, 0)))
	}
	add("job_state", j.state)
	add("queue", j.queue)
	add("server", serverHost)
	add("Account_Name", j.account)
	add("Checkpoint", "u")
	stamp("ctime", j.created)
	add("Error_Path", serverHost+":"+filepath.Join(j.cwd, fmt.Sprintf("%s.e%d", j.name, j.num)))
	add("exec_host", j.execHost())
	add("exec_vnode", j.execVnode())
	add("group_list", j.group)
	add("Hold_Types", j.hold)
	add("Join_Path", j.join)
	add("Keep_Files", j.keep)
	add("Mail_Points", j.mail())
	stamp("mtime", j.modified)
	add("Output_Path", serverHost+":"+j.outputPath())
	add("Priority", "0")
	stamp("qtime", j.created)
	add("Rerunable", map[bool]string{true: "True", false: "False"}[j.rerun])
	add("Resource_List.mem", totalMem(j.chunks))
	if total.mpiprocs > 0 {
		add("Resource_List.mpiprocs", strconv.Itoa(total.mpiprocs))
	}
	add("Resource_List.ncpus", strconv.Itoa(total.ncpus))
	if total.gpus > 0 {
		add("Resource_List.ngpus", strconv.Itoa(total.gpus))
	}
	add("Resource_List.nodect", strconv.Itoa(total.count))
	add("Resource_List.place", j.place)
	add("Resource_List.select", j.sel)
	if j.wall > 0 {
		add("Resource_List.walltime", clock(j.wall))
	}
	stamp("stime", j.started)
	stamp("obittime", j.obit)
	add("Shell_Path_List", j.shell)
	if j.session > 0 {
		add("session_id", strconv.Itoa(j.session))
	}
	if len(j.slots) > 0 {
		add("jobdir", j.env["HOME"])
	}
	add("substate", strconv.Itoa(j.substate))
	add("Variable_List", strings.Join(j.variables(), ","))
	add("comment", j.comment)
	stamp("etime", j.eligible)
	add("umask", strings.TrimLeft(j.umask, "0"))
	if j.runs > 0 {
		add("run_count", strconv.Itoa(j.runs))
	}
	add("Stageout_status", j.staged)
	if j.exit != nil {
		add("Exit_status", strconv.Itoa(*j.exit))
	}
	add("Submit_arguments", j.said)
	if j.state == "F" {
		add("history_timestamp", strconv.FormatInt(j.finished.Unix(), 10))
	}
	add("project", j.project)
	add("Submit_Host", serverHost)
	return out
}

func (j *job) mail() string {
	if strings.Contains(j.said, "-m n") {
		return "n"
	}
	return "a"
}

// variables are the job's Variable_List: what qsub adds about the submission, and the user's.
func (j *job) variables() []string {
	var out []string
	for _, v := range [][2]string{
		{"PBS_O_HOME", j.env["HOME"]}, {"PBS_O_LANG", j.env["LANG"]}, {"PBS_O_LOGNAME", j.owner}, {"PBS_O_PATH", j.env["PATH"]},
		{"PBS_O_SHELL", j.env["SHELL"]}, {"PBS_O_INTERACTIVE_AUTH_METHOD", "resvport"}, {"PBS_O_INTERACTIVE_ENCRYPT_METHOD", ""},
		{"PBS_O_WORKDIR", j.cwd}, {"PBS_O_SYSTEM", "Linux"},
	} {
		if v[1] != "" || v[0] == "PBS_O_INTERACTIVE_ENCRYPT_METHOD" {
			out = append(out, v[0]+"="+v[1])
		}
	}
	for _, kv := range j.vars {
		out = append(out, strings.NewReplacer(`\`, `\\`, `,`, `\,`, `"`, `\"`, `'`, `\'`).Replace(kv))
	}
	return append(out, "PBS_O_QUEUE="+j.queue, "PBS_O_HOST="+serverHost)
}

// totalMem adds the chunks' memory up, in the unit it was asked in.
func totalMem(chunks []chunk) string {
	var kb int64
	unit := ""
	for _, c := range chunks {
		kb += int64(c.count) * c.memKB
		if c.memText != "" {
			unit = strings.TrimLeft(c.memText, "0123456789")
		}
	}
	div, ok := map[string]int64{"kb": 1, "mb": 1 << 10, "gb": 1 << 20}[unit]
	if !ok || kb == 0 {
		return ""
	}
	return fmt.Sprintf("%d%s", kb/div, unit)
}
