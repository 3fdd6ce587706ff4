package step

import (
	"net/url"
	"regexp"
	"strings"
	"sync"
)

var (
	anyURL    = regexp.MustCompile(`(?i)(?:https?|s3)://[^\s"<>]+`)
	accessKey = regexp.MustCompile(`\b(?:AKIA|ASIA)[A-Z0-9]{4,}`)
)

const (
	redacted = "[redacted]"

	// minSecret keeps short words of an envelope ("204", a region) from being cut out of ordinary text.
	minSecret = 16
)

// redactor takes credentials out of text (section 12): URLs end at their query, and every secret that an envelope
// held is cut wherever it turns up. It is safe for concurrent use.
type redactor struct {
	mu      sync.Mutex
	secrets map[string]bool
	replace *strings.Replacer
}

// learn notes the secrets of an envelope.
func (r *redactor) learn(e *envelope) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.secrets == nil {
		r.secrets = map[string]bool{}
	}
	r.learnURL(e.manifest.url)
	for _, in := range e.inputs {
		r.learnURL(in.from.url)
	}
	r.learnURL(e.post.url)
	for _, f := range e.post.fields {
		if secretField(f.name) {
			r.add(f.value)
		}
	}
	r.replace = nil
}

func (r *redactor) learnURL(raw string) {
	_, query, _ := strings.Cut(raw, "?")
	for pair := range strings.SplitSeq(query, "&") {
		_, value, _ := strings.Cut(pair, "=")
		r.add(value)
		if plain, err := url.QueryUnescape(value); err == nil {
			r.add(plain)
		}
	}
}

func (r *redactor) add(secret string) {
	if len(secret) >= minSecret {
		r.secrets[secret] = true
	}
}

func secretField(name string) bool {
	name = strings.ToLower(name)
	for _, word := range []string{"policy", "signature", "credential", "token", "accesskey", "secret"} {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}

// text gives one line without credentials and control characters.
func (r *redactor) text(s string) string {
	r.mu.Lock()
	if r.replace == nil {
		pairs := make([]string, 0, 2*len(r.secrets))
		for secret := range r.secrets {
			pairs = append(pairs, secret, redacted)
		}
		r.replace = strings.NewReplacer(pairs...)
	}
	replace := r.replace
	r.mu.Unlock()
	s = anyURL.ReplaceAllStringFunc(s, bareURL)
	s = accessKey.ReplaceAllString(replace.Replace(s), redacted)
	return strings.TrimRight(printable(s), " ")
}

// bareURL cuts a URL at its first ? or # and takes a user and password out.
func bareURL(u string) string {
	if i := strings.IndexAny(u, "?#"); i >= 0 {
		u = u[:i]
	}
	scheme, rest, _ := strings.Cut(u, "://")
	host, path, _ := strings.Cut(rest, "/")
	if i := strings.LastIndex(host, "@"); i >= 0 {
		host = host[i+1:]
	}
	if len(rest) > len(path) && strings.Contains(rest, "/") {
		return scheme + "://" + host + "/" + path
	}
	return scheme + "://" + host
}
