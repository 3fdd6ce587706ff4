package fakeslurm

import (
	"fmt"
	"os"
	"time"
)

// Fault is something that goes wrong with one run of a command, or with several.
type Fault struct {
	Times  int           // how many runs it lasts; 0: until Mend
	Skip   bool          // the command does nothing of its own
	Delay  time.Duration // before it does anything
	Before string        // on standard output, before its own
	After  string        // on standard output, after its own
	Mute   bool          // its own standard output is lost
	Stderr string
	Code   int // exit code; 0: its own
}

// SocketTimeout: the controller took the job, and its answer was lost.
func SocketTimeout(command string) Fault {
	return Fault{Mute: true, Code: 1, Stderr: command + ": error: Batch job submission failed: Socket timed out on send/recv operation\n"}
}

// ControllerDown: nobody answers. The words and codes are those of 22.05; it takes no time, unlike the real one's ten seconds.
func ControllerDown(command string) Fault {
	f := Fault{Skip: true, Code: 1, Stderr: "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"}
	switch command {
	case "sbatch":
		f.Stderr = "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)\n"
	case "scancel":
		f.Code = 8
		f.Stderr = "scancel: error: Kill job error on job id 10: Unable to contact slurm controller (connect failure)\n"
	case "sacct", "sacctmgr":
		return Fault{} // they ask slurmdbd
	}
	return f
}

// DatabaseDown: slurmdbd doesn't answer.
func DatabaseDown(command string) Fault {
	return Fault{Skip: true, Code: 1, Stderr: command + ": error: Problem talking to the database: Connection refused\n"}
}

// MungeDown: this host can make no credentials.
func MungeDown(command string) Fault {
	f := Fault{Skip: true, Code: 1, Stderr: command + `: error: Munge encode failed: Failed to access "/run/munge/munge.socket.2": No such file or directory (Did you start munged?)` + "\n" +
		command + ": error: slurm_send_node_msg: auth_g_create: REQUEST_JOB_INFO has authentication error\n" +
		"slurm_load_jobs error: Protocol authentication error\n"}
	switch command {
	case "sbatch":
		f.Stderr = `sbatch: error: Munge encode failed: Failed to access "/run/munge/munge.socket.2": No such file or directory (Did you start munged?)` + "\n" +
			"sbatch: error: slurm_send_node_msg: auth_g_create: REQUEST_SUBMIT_BATCH_JOB has authentication error\n" +
			"sbatch: error: Batch job submission failed: Protocol authentication error\n"
	case "scancel":
		f.Code = 239
	}
	return f
}

// Slow makes a run take d before it does anything.
func Slow(d time.Duration) Fault { return Fault{Delay: d} }

// Banner is text that a site's wrapper prints before the command's own.
func Banner(text string) Fault { return Fault{Before: text} }

// Refuse makes sbatch refuse with these words, as Slurm does with its reasons.
func Refuse(words ...string) Fault {
	f := Fault{Skip: true, Code: 1}
	for _, w := range words {
		f.Stderr += "sbatch: error: " + w + "\n"
	}
	return f
}

// take returns the fault of this run of the command, if there is one, and counts it down.
func (c *cluster) take(command string) (Fault, bool) {
	for _, name := range []string{command, "*"} {
		faults := c.Faults[name]
		if len(faults) == 0 {
			continue
		}
		f := faults[0]
		if f.Times > 0 {
			faults[0].Times--
			if faults[0].Times == 0 {
				c.Faults[name] = faults[1:]
			}
		}
		return f, true
	}
	return Fault{}, false
}

// around runs a command's own work inside of a fault.
func (f Fault) around(work func() int) int {
	time.Sleep(f.Delay)
	fmt.Fprint(os.Stdout, f.Before)
	code := 0
	if !f.Skip {
		out := os.Stdout
		if f.Mute {
			if null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0); err == nil {
				os.Stdout = null
			}
		}
		code = work()
		os.Stdout = out
	}
	fmt.Fprint(os.Stdout, f.After)
	fmt.Fprint(os.Stderr, f.Stderr)
	if f.Code != 0 {
		return f.Code
	}
	return code
}
