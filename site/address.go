package site

import (
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"github.com/openai4s/hpc/internal/tomlfile"
)

const (
	listenHint    = `write "host:port" or just the port, like "0.0.0.0:8761" or "8761"`
	advertiseHint = `write "host:port", like "head-ib0:8761" or "[fd00::1]:8761"`
)

var hostName = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?$`)

// parseListen reads "port" or "host:port" and returns what net.Listen takes. A port alone means every address of
// the host, IPv4 and IPv6; 0 means a free port.
func parseListen(s string) (string, *Error) {
	bad := func(why string) (string, *Error) {
		return "", &Error{Msg: tomlfile.Show(s) + " " + why, Hint: listenHint}
	}
	host, port := "", s
	if strings.Trim(s, "0123456789") != "" || s == "" {
		var why string
		if host, port, why = splitAddress(s); why != "" {
			return bad(why)
		}
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return bad("has no port from 0 to 65535")
	}
	return net.JoinHostPort(host, strconv.FormatUint(n, 10)), nil
}

// parseAdvertise reads a "host:port" that another host can dial.
func parseAdvertise(s string) (string, *Error) {
	bad := func(why, hint string) (string, *Error) {
		return "", &Error{Msg: tomlfile.Show(s) + " " + why, Hint: hint}
	}
	host, port, why := splitAddress(s)
	if why != "" {
		return bad(why, advertiseHint)
	}
	if host == "" {
		return bad("names no host", advertiseHint)
	}
	if a, err := netip.ParseAddr(host); err == nil && a.IsUnspecified() {
		return bad("is no address that anybody can dial", "name an address of this host that the compute nodes reach")
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return bad("has no port from 1 to 65535", advertiseHint)
	}
	return net.JoinHostPort(host, strconv.FormatUint(n, 10)), nil
}

// splitAddress splits host and port; why says what is wrong with the host's form.
func splitAddress(s string) (host, port, why string) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		if a, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
			if a.Is6() && !strings.HasPrefix(s, "[") {
				return "", "", "is an IPv6 address without brackets and port"
			}
			return "", "", "has no port"
		}
		if strings.Count(s, ":") > 1 {
			return "", "", "has more than one colon outside brackets"
		}
		return "", "", "has no port"
	}
	if _, err := netip.ParseAddr(host); err != nil && host != "" && (!hostName.MatchString(host) || len(host) > 253) {
		return "", "", "has no valid host name"
	}
	return host, port, ""
}

// splitList takes a variable's list apart, at commas and blanks.
func splitList(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' || r == '\n' })
}

// isLoopback tells whether only this host can dial the address.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback() || host == "localhost" || strings.HasPrefix(host, "localhost.")
}
