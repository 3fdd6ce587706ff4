package fakeslurm

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

const stamp = "2006-01-02T15:04:05"

// selected tells whether the options choose the job: ids, name, user.
func (c *command) selected(j Job) bool {
	if ids, ok := c.options["jobs"]; ok && !slices.Contains(strings.Split(ids, ","), strconv.Itoa(j.ID)) {
		return false
	}
	if name, ok := c.options["name"]; ok && name != j.Name {
		return false
	}
	if u, ok := c.options["user"]; ok && u != j.User && u != strconv.Itoa(j.UID) {
		return false
	}
	return true
}

// squeue answers --Format=FIELD:SUFFIX,…, with the jobs that are young enough.
func (c *command) squeue() int {
	found := 0
	c.with(func(s *cluster) {
		for _, j := range s.Jobs {
			old := j.over() && time.Since(j.End) > s.Options.MinJobAge
			hidden := s.Options.Private && j.UID != os.Getuid() && os.Getuid() != 0
			if !c.selected(j) || j.Gone || old || hidden {
				continue
			}
			found++
			for f := range strings.SplitSeq(c.options["Format"], ",") {
				field, suffix, _ := strings.Cut(f, ":")
				fmt.Print(queueField(s.Options, j, field), suffix)
			}
			fmt.Println()
		}
	})
	if ids, ok := c.options["jobs"]; ok && found == 0 && !strings.Contains(ids, ",") {
		return say(1, "slurm_load_jobs error: Invalid job id specified")
	}
	return 0
}

func queueField(o Options, j Job, field string) string {
	switch field {
	case "JobID", "JobArrayID":
		return strconv.Itoa(j.ID)
	case "State":
		return j.State
	case "Reason":
		return j.Reason
	case "RestartCnt":
		return strconv.Itoa(j.Restarts)
	case "exit_code":
		if o.Modern {
			return fmt.Sprintf("%d:%d", j.Code, j.Signal)
		}
		return strconv.Itoa(j.Code<<8 | j.Signal)
	case "NodeList":
		if j.Start.IsZero() || j.State == "PENDING" {
			return ""
		}
		return nodeList(j.Nodes)
	case "SubmitTime":
		return j.Submit.Format(stamp)
	case "StartTime":
		return moment(j.Start, "N/A")
	case "EndTime":
		return moment(j.End, "N/A")
	case "UserName":
		return j.User
	case "UserID":
		return strconv.Itoa(j.UID)
	case "Name":
		return j.Name
	}
	return "INVALID_FIELD"
}

// sacct answers --parsable with a delimiter, with all jobs.
func (c *command) sacct() int {
	if _, ok := c.options["helpformat"]; ok {
		fmt.Println("Account End ExitCode JobID JobIDRaw JobName NodeList Reason Start State Submit UID User")
		return 0
	}
	code := 0
	c.with(func(s *cluster) {
		if !s.Options.Accounting {
			code = say(1, "Slurm accounting storage is disabled")
			return
		}
		for _, j := range s.Jobs {
			if !c.selected(j) || s.Options.Private && j.UID != os.Getuid() && os.Getuid() != 0 {
				continue
			}
			for f := range strings.SplitSeq(c.options["format"], ",") {
				fmt.Print(accountField(j, f), c.options["delimiter"])
			}
			fmt.Println()
		}
	})
	return code
}

func accountField(j Job, field string) string {
	switch field {
	case "JobID", "JobIDRaw":
		return strconv.Itoa(j.ID)
	case "State":
		if j.State == "CANCELLED" && j.Killer != 0 {
			return fmt.Sprintf("CANCELLED by %d", j.Killer-1)
		}
		return j.State
	case "Reason":
		return none
	case "ExitCode":
		if j.State != "COMPLETED" && j.State != "FAILED" {
			return "0:0"
		}
		return fmt.Sprintf("%d:%d", j.Code, j.Signal)
	case "NodeList":
		if j.Start.IsZero() {
			return "None assigned"
		}
		return nodeList(j.Nodes)
	case "Submit":
		return j.Submit.Format(stamp)
	case "Start":
		return moment(j.Start, "Unknown")
	case "End":
		return moment(j.End, "Unknown")
	case "User":
		return j.User
	case "UID":
		return strconv.Itoa(j.UID)
	case "JobName":
		return j.Name
	}
	return ""
}

func moment(t time.Time, unset string) string {
	if t.IsZero() {
		return unset
	}
	return t.Format(stamp)
}

// scontrol answers `show config`, `show partition` and `show node`, with the lines that matter.
func (c *command) scontrol() int {
	if len(c.args) < 2 || c.args[0] != "show" {
		return say(1, "invalid keyword: %s", strings.Join(c.args, " "))
	}
	var o Options
	c.with(func(s *cluster) { o = s.Options })
	switch c.args[1] {
	case "config":
		storage, version, private := "(null)", "22.05.8", "none"
		if o.Accounting {
			storage = "accounting_storage/slurmdbd"
		}
		if o.Modern {
			version = "24.11.5"
		}
		if o.Private {
			private = "jobs"
		}
		fmt.Printf("Configuration data as of %s\n", now().Format(stamp))
		for _, l := range [][2]string{
			{"AccountingStorageType", storage}, {"ClusterName", "fake"}, {"KillWait", fmt.Sprintf("%d sec", int(o.KillWait.Seconds()))},
			{"MinJobAge", fmt.Sprintf("%d sec", int(o.MinJobAge.Seconds()))}, {"PrivateData", private},
			{"SlurmUser", "slurm(64030)"}, {"SLURM_VERSION", version},
		} {
			fmt.Printf("%-23s = %s\n", l[0], l[1])
		}
		fmt.Println("\nSlurmctld(primary) at fake is UP")
	case "partition":
		fmt.Printf("PartitionName=main AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=YES QoS=N/A DefaultTime=00:10:00 MaxNodes=UNLIMITED MaxTime=01:00:00 Nodes=%s State=UP TotalCPUs=%d TotalNodes=%d\n",
			nodeList(o.Nodes), 4*o.Nodes, o.Nodes)
	case "node":
		for i := range o.Nodes {
			fmt.Printf("NodeName=n%d Arch=x86_64 CPUTot=4 Gres=gpu:4 RealMemory=4096 State=IDLE Partitions=main \n", i+1)
		}
	default:
		return say(1, "invalid entity:%s for keyword:show", c.args[1])
	}
	return 0
}

// sacctmgr answers `show configuration`, `show user` and `show assoc`.
func (c *command) sacctmgr() int {
	var o Options
	c.with(func(s *cluster) { o = s.Options })
	if !o.Accounting {
		return say(1, "You are not running a supported accounting_storage plugin\n(accounting_storage/none).")
	}
	if len(c.args) < 2 || c.args[0] != "show" {
		return say(1, "sacctmgr: error: no command")
	}
	switch c.args[1] {
	case "configuration":
		private := "none"
		if o.Private {
			private = "jobs"
		}
		fmt.Printf("PrivateData            = %s\nPrivateData            = %s\n", private, private)
	case "user":
		fmt.Printf("%s|None\n", me())
	case "assoc":
		fmt.Println("lab|normal")
	}
	return 0
}
