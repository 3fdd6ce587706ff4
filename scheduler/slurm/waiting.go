package slurm

import (
	"strings"

	"github.com/openai4s/hpc/scheduler"
)

// holds are reasons for which a job waits until a person acts.
var holds = map[string]string{
	"jobhelduser":                           "held by its owner: `scontrol release` lets it go",
	"jobheldadmin":                          "held by an administrator",
	"jobholdmaxrequeue":                     "held: it was requeued as often as this site allows; `scontrol release` lets it go",
	"launch_failed_requeued_held":           "held: a node could not start it; `scontrol release` lets it try again",
	"user_env_retrieval_failed_requeued_he": "held: the user's environment could not be read; `scontrol release` lets it try again",
	"requeueexithold":                       "held for its exit code; `scontrol release` lets it go",
	"reservationdeleted":                    "held: its reservation was deleted",
}

// nevers are reasons that don't pass by themselves.
var nevers = map[string]string{
	"partitionnodelimit":       "it asks for more (or fewer) nodes than its partition allows",
	"partitiontimelimit":       "it asks for more time than its partition allows",
	"partitionconfig":          "it asks for more than its partition has, nodes above all",
	"badconstraints":           "no node, or not enough of them, has the features it asks for",
	"invalidaccount":           "its account is not valid any more",
	"invalidqos":               "its QoS is not valid any more",
	"accountnotallowed":        "its account may not use this partition",
	"qosnotallowed":            "its QoS may not be used in this partition or by this account",
	"dependencyneversatisfied": "what it depends on failed",
	"maxmemperlimit":           "it asks for more memory than this site allows",
}

// budgets are the tails of reasons that say an account's or QoS's budget is used up: it may be refilled.
var budgets = []string{"minuteslimit", "minutes", "qosusagethreshold"}

// waiting says in o why a job waits, for the reasons that a user can do something about.
func waiting(o *scheduler.Observation, reason string) {
	// "launch failed requeued held", "ReqNodeNotAvail, UnavailableNodes:n3", "(Nodes required for job are DOWN, …)"
	key, _, _ := strings.Cut(strings.ToLower(reason), ",")
	key = strings.ReplaceAll(strings.Trim(key, " ()"), " ", "_")
	if text, ok := holds[key]; ok {
		o.Held, o.Message = true, text
		return
	}
	if strings.Contains(key, "requeued_held") || strings.HasPrefix(key, "user_env_retrieval_failed") {
		o.Held, o.Message = true, holds["launch_failed_requeued_held"]
		return
	}
	if text, ok := nevers[key]; ok {
		unschedulable(o, text)
		return
	}
	limit := strings.HasPrefix(key, "assoc") || strings.HasPrefix(key, "qos")
	switch {
	case limit && (strings.Contains(key, "perjob") || strings.HasSuffix(key, "pernode")):
		unschedulable(o, "it asks for more than the limit "+word(reason)+" allows one job")
	case strings.HasPrefix(key, "qosmin"):
		unschedulable(o, "it asks for less than its QoS demands ("+word(reason)+")")
	case limit && hasSuffix(key, budgets):
		o.Message = "the budget of its account or QoS is used up (" + word(reason) + ")"
	case limit && o.Message == "":
		o.Message = "it waits for a limit of its account or QoS (" + word(reason) + "), which passes as other jobs end"
	case key == "reqnodenotavail", strings.HasPrefix(key, "nodes_required"):
		o.Message = "nodes it needs are down, drained or reserved"
	case key == "partitiondown", key == "partitioninactive":
		o.Message = "its partition is closed for now"
	}
}

func unschedulable(o *scheduler.Observation, why string) {
	o.Reason = scheduler.Unschedulable
	o.Message = "it can't run as it is: " + why + "; cancel it and submit it anew, or ask the site's administrators"
}

func hasSuffix(s string, suffixes []string) bool {
	for _, x := range suffixes {
		if strings.HasSuffix(s, x) {
			return true
		}
	}
	return false
}
