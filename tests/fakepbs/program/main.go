// The fake PBS program: see package fakepbs.
package main

import (
	"os"

	"github.com/openai4s/hpc/tests/fakepbs"
)

func main() { os.Exit(fakepbs.Main(os.Args[0], os.Args[1:])) }
