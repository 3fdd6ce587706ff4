// Package breakage holds the real programs to their promises when things break: cancelled, killed, stopped, cut off,
// their folders gone. Its tests run on this machine's own scheduler; with the tag live on a real Slurm, with pbsfake on
// the fake PBS.
package breakage
