package step

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// Words of section 7's table, lower case and without blanks.
var (
	expiredWords = []string{
		"expired", "accessdenied", "invalidaccesskeyid", "signaturedoesnotmatch",
		"tokenrefreshrequired", "requesttimetooskewed", "authorization",
	}
	transientCodes = []string{
		"slowdown", "requesttimeout", "operationaborted", "requestthrottled",
		"throttling", "toomanyrequests", "internalerror", "serviceunavailable",
	}
	// A code is a word: what has other characters is something else, perhaps a URL.
	storeCode = regexp.MustCompile(fmt.Sprintf(`<Code>([A-Za-z0-9 ._-]{1,%d})</Code>`, maxStoreCode))
)

// refusal classifies an answer that isn't 2xx (section 7). Its text has status, reason and the store's own code,
// never the URL and nothing else of the body.
func refusal(conn *connection, resp *http.Response) error {
	conn.readWithin(refusalBody)
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody)) // what came is enough
	code := ""
	if m := storeCode.FindSubmatch(body); m != nil {
		code = printable(string(m[1]))
	}
	reason := cut(printable(strings.TrimSpace(strings.TrimPrefix(resp.Status, fmt.Sprint(resp.StatusCode)))), maxStoreCode)
	text := strings.TrimSpace(fmt.Sprintf("HTTP %d %s", resp.StatusCode, reason))
	if code != "" {
		text += " (" + code + ")"
	}
	return classifyRefusal(resp.StatusCode, reason, code, text)
}

func classifyRefusal(status int, reason, code, text string) error {
	f := &failure{code: ExitPermanent, err: fmt.Errorf("the store answered %s", text)}
	said := squeeze(fmt.Sprint(status) + reason + code)
	switch {
	case (status == 400 || status == 401 || status == 403) &&
		slices.ContainsFunc(expiredWords, func(w string) bool { return strings.Contains(said, w) }):
		f.code, f.expired = ExitTransient, true
	case status >= 500, status == http.StatusTooManyRequests, slices.Contains(transientCodes, squeeze(code)):
		f.code = ExitTransient
	case status/100 == 3:
		f.code = ExitTransient
		f.err = fmt.Errorf("the store answered %s, a redirect, which is never followed", text)
	}
	return f
}

func squeeze(s string) string {
	return strings.ToLower(strings.Join(strings.Fields(s), ""))
}
