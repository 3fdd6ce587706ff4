package gang

// Cause says why a gang ended.
type Cause string

// The causes. Undecided means that ranks ended by the scheduler's TERM and the job's own end must tell why.
const (
	Completed           Cause = "completed"
	CommandFailed       Cause = "command failed"
	RegistrationTimeout Cause = "registration timeout"
	RankLost            Cause = "rank lost"
	Walltime            Cause = "walltime"
	Stopped             Cause = "stopped" // by Stop: cancel, lease, a requeue
	Undecided           Cause = "undecided"
)

// Exit is a rank's own report of its command's end.
type Exit struct {
	Code    int
	Signal  int
	By      ExitBy
	Message string
}

// ExitBy says what ended the command, if not the command itself.
type ExitBy string

// What can end a command.
const (
	ByItself    ExitBy = ""
	ByOrder     ExitBy = "order"
	ByScheduler ExitBy = "scheduler"
	ByWalltime  ExitBy = "walltime"
)

// Outcome is why and how the gang ended.
type Outcome struct {
	Cause   Cause
	Code    int // the workload's exit code
	Signal  int
	Rank    int // that decided it, -1 for none
	Host    string
	Message string
	Missing []int // ranks that never came or were lost
	Gone    bool  `json:",omitempty"` // the missing ones had come, and their connections were gone at the end
}

// verdict of a gang whose ranks all ended without a decision.
func (g *Gang) verdict() *Outcome {
	for i := range g.ranks {
		if e := g.ranks[i].exit; e == nil || e.By == ByScheduler || e.By == ByOrder {
			o := Outcome{Cause: Undecided, Rank: i, Host: g.ranks[i].member.Host, Code: 143}
			if e != nil {
				o.Code, o.Signal = orElse(code(*e), 143), e.Signal
			}
			return &o
		}
	}
	return &Outcome{Cause: Completed, Rank: 0, Host: g.ranks[0].member.Host}
}

// code is the exit code a shell would show.
func code(e Exit) int {
	if e.Signal != 0 {
		return 128 + e.Signal
	}
	return e.Code
}

func orElse(code, other int) int {
	if code != 0 {
		return code
	}
	return other
}

func firstOf(r []int) int {
	if len(r) == 0 {
		return -1
	}
	return r[0]
}
