package slurm

import (
	"strings"

	"github.com/openai4s/hpc/scheduler"
)

// verdict on an sbatch that failed. sbatch tells a refusal from a lost answer by its words alone (both end with 1), so
// there is this one table of its own fixed words, the same in all versions. What isn't in it is Unknown.
type verdict struct {
	outcome scheduler.Outcome
	reason  scheduler.Reason
	hint    string
	later   bool // the job is good, a limit is in its way for now
	busy    bool // the controller is overloaded
}

type rule struct {
	text string // found in a line of standard error
	verdict
}

func refused(reason scheduler.Reason, hint string) verdict {
	return verdict{outcome: scheduler.Rejected, reason: reason, hint: hint}
}

func notNow(hint string) verdict {
	return verdict{outcome: scheduler.Rejected, reason: scheduler.PolicyRejected, hint: hint, later: true}
}

func lost(hint string, busy bool) verdict {
	return verdict{outcome: scheduler.Unknown, reason: scheduler.BackendSubmissionUnknown, hint: hint, busy: busy}
}

// Nothing was handed over: no connection, or no credential to open one with.
func unreached(hint string) verdict {
	return verdict{outcome: scheduler.Rejected, reason: scheduler.BackendUnavailable, hint: hint, later: true}
}

// rules, the first that fits counts. Lost answers come first: a line of them outweighs any refusal beside it.
var rules = []rule{
	{"Socket timed out on send/recv", lost(lookFirst, true)},
	{"Zero Bytes were transmitted or received", lost(lookFirst, true)},
	{"Unable to contact slurm controller (connect failure)", unreached("the controller doesn't answer: `scontrol ping`; try again later")},
	// The client could not make its credential, so nothing was sent. Other authentication errors may concern the answer.
	{"auth_g_create: REQUEST_SUBMIT_BATCH_JOB has authentication error", unreached("the authentication service of this host doesn't answer (munge): ask the site's administrators")},
	{"uthentication", lost(lookFirst, false)},

	{"unrecognized option", refused(scheduler.InvalidSpec, "this sbatch doesn't know one of the options: see directives in the site file, and [site] commands")},
	{"invalid option", refused(scheduler.InvalidSpec, "this sbatch doesn't know one of the options: see directives in the site file, and [site] commands")},
	{"Invalid partition name specified", refused(scheduler.BackendRejected, "the profile's partition doesn't exist here: `openai4s site check` lists those that do")},
	{"No partition specified or system default partition", refused(scheduler.BackendRejected, "this cluster has no default partition: set one in the profile")},
	{"group not permitted to use this partition", refused(scheduler.AuthorizationDenied, "this partition is for other groups: choose another profile")},
	{"Invalid account or account/partition combination", refused(scheduler.AuthorizationDenied, "the account is missing, or you may not charge it here: `sacctmgr show assoc user=$USER` lists yours; set account in the profile")},
	{"Invalid qos specification", refused(scheduler.BackendRejected, "the QoS doesn't exist, or your account may not use it: `sacctmgr show assoc user=$USER format=account,qos`")},
	{"Invalid feature specification", refused(scheduler.BackendRejected, "no node has the feature that the profile's directives ask for")},
	{"Requested time limit is invalid", refused(scheduler.BackendRejected, "the walltime is more than the partition allows: ask for less")},
	{"Time limit specification required", refused(scheduler.BackendRejected, "this site wants a walltime in every job")},
	{"Requested node configuration is not available", refused(scheduler.BackendRejected, "the cluster has no such nodes, or not as many: ask for fewer nodes, GPUs, CPUs or less memory")},
	{"More processors requested than permitted", refused(scheduler.BackendRejected, "the partition has fewer nodes or CPUs than the job asks for")},
	{"Node count specification invalid", refused(scheduler.BackendRejected, "the partition doesn't allow that many nodes")},
	{"Memory required by task is not available", refused(scheduler.BackendRejected, "no node has that much memory")},
	{"CPU count specification invalid", refused(scheduler.BackendRejected, "the partition doesn't allow that many CPUs")},
	{"Requested nodes not in this partition", refused(scheduler.BackendRejected, "the profile's directives name nodes of another partition")},
	{"Invalid generic resource (gres) specification", refused(scheduler.BackendRejected, "the cluster has no such GPUs: see gpus_per_node, gpu_type and gpu_style in the profile")},
	{"Invalid Trackable RESource (TRES) specification", refused(scheduler.BackendRejected, "the cluster has no such GPUs: see gpus_per_node, gpu_type and gpu_style in the profile")},
	{"Requested GRES option unsupported", refused(scheduler.BackendRejected, `this cluster wants its GPUs asked for as --gres: set gpu_style = "gres" in the profile`)},
	{"Requested reservation is invalid", refused(scheduler.BackendRejected, "the reservation of the profile's directives doesn't exist")},
	{"Access denied to requested reservation", refused(scheduler.AuthorizationDenied, "the reservation of the profile's directives is for others")},
	{"Access/permission denied", refused(scheduler.AuthorizationDenied, "you may not submit here: ask the site's administrators")},
	{"Pathname of a file, directory or other parameter too long", refused(scheduler.InvalidSpec, "the script or one of its parameters is too long for this site")},
	{"Only batch jobs are accepted or processed", refused(scheduler.PolicyRejected, "")},
	{"Batch script contains DOS line breaks", refused(scheduler.InvalidSpec, "")},
	{"does not look like a batch script", refused(scheduler.InvalidSpec, "")},
	{"Requested partition configuration not available now", refused(scheduler.BackendRejected, "the partition is too small, or closed for now")},
	{"Required partition not available (inactive or drain)", notNow("the partition is closed for now: try again later")},
	{"Required node not available (down, drained or reserved)", notNow("nodes that the job needs are down for now: try again later")},
	{"Requested reservation not usable now", notNow("the reservation isn't usable now: try again later")},
	{"breached requested QOS usage threshold", notNow("the budget of the QoS is used up: try again later, or another profile")},
	{"Resource temporarily unavailable", verdict{outcome: scheduler.Rejected, reason: scheduler.BackendUnavailable, later: true, busy: true,
		hint: "the cluster holds as many jobs as it can: try again later"}},
	{"Unable to create job record, try again", verdict{outcome: scheduler.Rejected, reason: scheduler.BackendUnavailable, later: true, busy: true,
		hint: "the controller is short of room: try again later"}},
	{"cli_filter plugin terminated with error", refused(scheduler.PolicyRejected, siteRefused)},
}

const (
	violates    = "Job violates accounting/QOS policy"
	failedWords = "Batch job submission failed: "
	unspecified = failedWords + "Unspecified error"
	siteRefused = "this site's own policy refused the job: its words say why"
)

// verdictOf judges a failed sbatch by its words.
func verdictOf(res result) verdict {
	text := string(res.stderr)
	for _, r := range rules {
		if strings.Contains(text, r.text) {
			return r.verdict
		}
	}
	switch {
	case strings.Contains(text, violates):
		return limitVerdict(text)
	case strings.Contains(text, unspecified) && strings.Count(text, "sbatch: error: ") > 1:
		// The controller's own answer to what its job_submit plugin refused; the plugin's words stand above it.
		return refused(scheduler.PolicyRejected, siteRefused)
	case res.code == 255 && strings.Contains(text, "sbatch: error: ") && !strings.Contains(text, failedWords):
		// sbatch itself ends with 255 while it reads its options, before it connects.
		return refused(scheduler.InvalidSpec, "sbatch refuses one of the options: see directives in the site file")
	}
	return lost(lookFirst, false)
}

// limitVerdict tells a limit that passes as other jobs end from one that this job can never meet. Slurm names it on a
// line of its own, except before 20.11.
func limitVerdict(text string) verdict {
	limit := ""
	for line := range strings.Lines(text) {
		if w, ok := strings.CutPrefix(strings.TrimSpace(line), "sbatch: error: "); ok {
			if strings.HasPrefix(w, "Assoc") || strings.HasPrefix(w, "QOS") || strings.HasPrefix(w, "Max") {
				limit = w
			}
		}
	}
	lower := strings.ToLower(limit)
	if strings.Contains(lower, "perjob") && !strings.Contains(lower, "submit") || strings.HasSuffix(lower, "pernode") || strings.HasPrefix(lower, "qosmin") {
		return refused(scheduler.PolicyRejected, "the job asks for more than the limit "+word(limit)+" allows one job: ask for less, or use another profile")
	}
	return notNow("a limit of your account or QoS is reached: try again when other jobs of yours have ended")
}
