package main

import (
	"fmt"

	"github.com/openai4s/hpc/internal/step"
)

type verifyCommand struct {
	Dir string `arg:"" name:"dir" help:"A published folder."`
}

func (verifyCommand) Help() string {
	return `Every file that the marker names must be there with its size and hash, and no other. Ends with 0 if the folder is
whole, with 1 if it isn't.

Example:

    openai4s verify /scratch/me/results`
}

// verified is the answer of verify with --json.
type verified struct {
	Dir      string         `json:"dir"`
	Whole    bool           `json:"whole"`
	Problems []step.Problem `json:"problems"`
}

func (c *verifyCommand) Run(a *app) error {
	problems, err := step.Verify(c.Dir)
	if err != nil {
		return fmt.Errorf("verifying: %w", err)
	}
	if a.json {
		err = a.print(verified{c.Dir, len(problems) == 0, append([]step.Problem{}, problems...)})
	} else {
		err = a.showVerified(c.Dir, problems)
	}
	if err == nil && len(problems) > 0 {
		return &ended{exitFailed}
	}
	return err
}

func (a *app) showVerified(dir string, problems []step.Problem) error {
	text := ""
	for _, p := range problems {
		text += word(p.String()) + "\n"
	}
	if len(problems) == 0 {
		a.note("%s is whole", dir)
	}
	if _, err := fmt.Fprint(a.out, text); err != nil {
		return fmt.Errorf("writing standard output: %w", err)
	}
	return nil
}
