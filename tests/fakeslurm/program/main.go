// The program behind the fake Slurm's commands: see package fakeslurm.
package main

import (
	"os"

	"github.com/openai4s/hpc/tests/fakeslurm"
)

func main() { os.Exit(fakeslurm.Main(os.Args)) }
