package sbatch

import (
	"path/filepath"
	"strconv"
	"strings"

	"github.com/openai4s/hpc/scheduler"
)

// PerRank tells whether a job's output pattern asks for a file of each rank's own.
func PerRank(pattern string) bool {
	per := false
	expand(pattern, func(code byte) string {
		per = per || code == 'r'
		return ""
	}, nil)
	return per
}

// OutputPath is the file that a job's output is in: output is the pattern of the Request, made absolute by
// workdir; rank counts only where the pattern asks for a file of each rank's own.
func OutputPath(output, workdir string, w scheduler.WorkloadID, job string, rank int) string {
	return absolute(expand(output, func(code byte) string {
		switch code {
		case 'w':
			return string(w)
		case 'j':
			return job
		}
		return strconv.Itoa(rank)
	}, nil), workdir)
}

// translate writes an output pattern in a scheduler's own codes: job and rank are what stands for %j and %r,
// literal treats all other text.
func translate(r scheduler.Request, l scheduler.Launch, job, rank string, literal func(string) string) string {
	expanded := func(path string) string {
		return expand(path, func(code byte) string {
			switch code {
			case 'w':
				return literal(string(l.Workload))
			case 'j':
				return job
			}
			return rank
		}, literal)
	}
	if filepath.IsAbs(r.Output) {
		return expanded(r.Output)
	}
	return strings.TrimSuffix(literal(r.Workdir), "/") + "/" + expanded(r.Output)
}

// expand replaces %w, %j and %r by what code says, %% by a percent sign; any other percent sign is itself.
func expand(pattern string, code func(byte) string, literal func(string) string) string {
	if literal == nil {
		literal = func(s string) string { return s }
	}
	var b, text strings.Builder
	flush := func() {
		if text.Len() == 0 {
			return
		}
		b.WriteString(literal(text.String()))
		text.Reset()
	}
	for i := 0; i < len(pattern); i++ {
		next := byte(0)
		if pattern[i] == '%' && i+1 < len(pattern) {
			next = pattern[i+1]
		}
		switch next {
		case 'w', 'j', 'r':
			flush()
			b.WriteString(code(next))
			i++
		case '%':
			text.WriteByte('%')
			i++
		default:
			text.WriteByte(pattern[i])
		}
	}
	flush()
	return b.String()
}

func absolute(path, dir string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// doublePercent keeps text from being read as a code.
func doublePercent(s string) string { return strings.ReplaceAll(s, "%", "%%") }
