// Package step is the external step: verified inputs, inventoried outputs, a completion marker written last.
//
// An orchestrator hands a step short-lived credentials, pinned inputs and a staging area. [Main] is the program it
// starts (openai4s-agent step). A job of this project gets the same for its inputs and outputs from [Pin],
// [Check], [Publish] and [Verify], which know no credentials and work on folders.
//
// The contract is version 1 of the external step. Section numbers in comments are those of its specification;
// every number it names is a constant in limits.go.
package step
