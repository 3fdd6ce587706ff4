package fakepbs

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// field is an attribute of a job, "Resource_List.mem" being the resource mem of the attribute Resource_List.
type field struct{ name, value string }

// texts are attributes that JSON shows as text even where they look like numbers.
var texts = []string{"Job_Name", "Account_Name", "project", "queue", "Job_Owner"}

// textForm is a job in `qstat -f`.
func textForm(id string, fields []field) string {
	var b strings.Builder
	b.WriteString("Job Id: " + id + "\n")
	for _, f := range fields {
		b.WriteString(folded(f.name, f.value) + "\n")
	}
	b.WriteString("\n")
	return b.String()
}

// Line lengths of the text form. A part up to a comma goes to a new line, of an indent that counts 8, if the line
// would reach 78; a part longer than a line is broken anywhere.
const (
	foldAt   = 78
	foldedTo = 8
)

func folded(name, value string) string {
	var b strings.Builder
	b.WriteString("    " + name + " = ")
	col := b.Len()
	parts := strings.Split(value, ",")
	for i, part := range parts {
		if col+len(part) < foldAt {
			b.WriteString(part)
			col += len(part)
		} else {
			limit := foldAt + 1
			if i > 0 {
				b.WriteString("\n\t")
				col, limit = foldedTo, foldAt
			}
			for j := range len(part) {
				b.WriteByte(part[j])
				if col++; col >= limit {
					b.WriteString("\n\t")
					col = foldedTo
				}
			}
		}
		if i < len(parts)-1 {
			b.WriteByte(',')
			col++
		}
	}
	return b.String()
}

// jsonNode is a value of the JSON form: text, or members in their order.
type jsonNode struct {
	name    string
	text    string
	members []jsonNode
	list    []string
	open    bool // has members, none too
}

// jobNode is a job in `qstat -f -F json`.
func jobNode(id string, fields []field) jsonNode {
	job := jsonNode{name: id, open: true}
	for _, f := range fields {
		parent, leaf, nested := strings.Cut(f.name, ".")
		if f.name == "Variable_List" {
			vars := jsonNode{name: f.name, open: true}
			for _, kv := range splitVariables(f.value) {
				k, v, _ := strings.Cut(kv, "=")
				vars.members = append(vars.members, jsonNode{name: k, text: v})
			}
			job.members = append(job.members, vars)
			continue
		}
		if !nested {
			job.members = append(job.members, jsonNode{name: f.name, text: f.value})
			continue
		}
		if n := len(job.members); n == 0 || job.members[n-1].name != parent {
			job.members = append(job.members, jsonNode{name: parent, open: true})
		}
		last := &job.members[len(job.members)-1]
		last.members = append(last.members, jsonNode{name: leaf, text: f.value})
	}
	return job
}

// splitVariables takes a Variable_List apart; a comma inside a value is escaped.
func splitVariables(s string) []string {
	var out []string
	start := 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case ',':
			out = append(out, s[start:i])
			start = i + 1
		}
	}
	return append(out, s[start:])
}

var numeric = regexp.MustCompile(`^-?[0-9]+(\.[0-9]+)?$`)

// document is the whole JSON answer; members come after the three of the head.
func document(timestamp int64, members ...jsonNode) string {
	var b strings.Builder
	head := []jsonNode{{name: "timestamp", text: fmt.Sprint(timestamp)}, {name: "pbs_version", text: version}, {name: "pbs_server", text: serverHost}}
	writeObject(&b, append(head, members...), 1)
	return b.String() + "\n"
}

func writeObject(b *strings.Builder, members []jsonNode, depth int) {
	b.WriteString("{")
	for i, m := range members {
		if i > 0 {
			b.WriteString(",")
		}
		b.WriteString("\n" + strings.Repeat("\t", depth) + quoted(m.name) + ":\t")
		switch {
		case m.open:
			writeObject(b, m.members, depth+1)
		case m.list != nil:
			for i, s := range m.list {
				m.list[i] = quoted(s)
			}
			b.WriteString("[" + strings.Join(m.list, ", ") + "]")
		case numeric.MatchString(m.text) && !slices.Contains(texts, m.name) && m.name != "pbs_version":
			b.WriteString(strings.TrimLeft(m.text[:len(m.text)-1], "0") + m.text[len(m.text)-1:])
		default:
			b.WriteString(quoted(m.text))
		}
	}
	b.WriteString("\n" + strings.Repeat("\t", depth-1) + "}")
}

// quoted writes a JSON string; bytes that are no UTF-8 pass as they are, as the real commands let them.
func quoted(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b.WriteString(`\` + string(c))
		case c < 0x20:
			e, _ := json.Marshal(string(rune(c)))
			b.Write(e[1 : len(e)-1])
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
