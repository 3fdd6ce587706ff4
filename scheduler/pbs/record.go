package pbs

import "strings"

// record is one job as `qstat -f` prints it.
type record struct {
	id    string
	attrs []attr
}

type attr struct{ name, value string }

const (
	recordHead = "Job Id: "
	attrIndent = "    "
)

// parseRecords reads the text form: a line "Job Id: 12.server", a line "    name = value" for each attribute, long
// values folded by a line break and a tab, an empty line after each job.
//
// Values are not escaped. A user's exported variable may hold line breaks, and behind them text that looks like an
// attribute or like another job: callers treat a job that appears twice as not answered, and take an attribute
// that the server prints before Variable_List by its first occurrence, a later one by its last.
func parseRecords(out []byte) []record {
	text := strings.ReplaceAll(string(out), "\n\t", "")
	var (
		records []record
		cur     *record
	)
	for line := range strings.SplitSeq(text, "\n") {
		if id, ok := strings.CutPrefix(line, recordHead); ok {
			records = append(records, record{id: strings.TrimSpace(id)})
			cur = &records[len(records)-1]
			continue
		}
		if cur == nil { // a banner
			continue
		}
		if rest, ok := strings.CutPrefix(line, attrIndent); ok {
			if name, value, ok := strings.Cut(rest, " = "); ok && isAttrName(name) {
				cur.attrs = append(cur.attrs, attr{name, value})
				continue
			}
		}
		if n := len(cur.attrs); n > 0 && line != "" { // what follows a line break inside a value
			cur.attrs[n-1].value += "\n" + line
		}
	}
	return records
}

// isAttrName tells whether s can be an attribute's name, "job_state" or "Resource_List.select".
func isAttrName(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-', c == '.':
		default:
			return false
		}
	}
	return s != ""
}

// early returns an attribute that the server prints before the user's variables.
func (r record) early(name string) string {
	for _, a := range r.attrs {
		if a.name == name {
			return a.value
		}
	}
	return ""
}

// late returns an attribute that the server prints after the user's variables, and whether there is one.
func (r record) late(name string) (string, bool) {
	for i := len(r.attrs) - 1; i >= 0; i-- {
		if r.attrs[i].name == name {
			return r.attrs[i].value, true
		}
	}
	return "", false
}
