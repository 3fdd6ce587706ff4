package step

import (
	"net"
	"net/netip"
	"net/url"
	"strings"
)

// proxies chooses a proxy by the usual variables (section 15). The lower-case name of a variable wins. Unlike
// net/http, it sends loopback hosts through a proxy too unless no_proxy says otherwise: the variables are the
// platform's word.
type proxies struct {
	byScheme map[string]string
	except   []string
}

func proxiesFrom(getenv func(string) string) proxies {
	get := func(name string) string {
		if v := getenv(name); v != "" {
			return v
		}
		return getenv(strings.ToUpper(name))
	}
	p := proxies{byScheme: map[string]string{"http": get("http_proxy"), "https": get("https_proxy")}}
	for scheme, value := range p.byScheme {
		if value == "" {
			p.byScheme[scheme] = get("all_proxy")
		}
	}
	if getenv("REQUEST_METHOD") != "" && getenv("http_proxy") == "" {
		p.byScheme["http"] = "" // a CGI client's "Proxy:" header arrives as HTTP_PROXY
	}
	for entry := range strings.SplitSeq(get("no_proxy"), ",") {
		if entry = strings.ToLower(strings.TrimSpace(entry)); entry != "" {
			p.except = append(p.except, entry)
		}
	}
	return p
}

// forURL gives the proxy to use, nil for none. Errors never quote the variable, which may hold a password.
func (p proxies) forURL(u *url.URL) (*url.URL, error) {
	value := p.byScheme[u.Scheme]
	if value == "" || p.bypassed(strings.ToLower(u.Hostname()), u.Port()) {
		return nil, nil
	}
	if !strings.Contains(value, "://") {
		value = "http://" + value
	}
	proxy, err := url.Parse(value)
	if err != nil || proxy.Host == "" || proxy.Scheme != "http" && proxy.Scheme != "https" {
		return nil, transientf("the proxy variable for %s is not the URL of an http or https proxy", u.Scheme)
	}
	return proxy, nil
}

func (p proxies) bypassed(host, port string) bool {
	addr, addrErr := netip.ParseAddr(host)
	for _, entry := range p.except {
		if entry == "*" {
			return true
		}
		if network, err := netip.ParsePrefix(entry); err == nil && addrErr == nil && network.Contains(addr.Unmap()) {
			return true
		}
		name := entry
		if h, entryPort, err := net.SplitHostPort(entry); err == nil {
			if entryPort != port {
				continue
			}
			name = h
		}
		name = strings.TrimPrefix(strings.TrimPrefix(name, "*"), ".")
		if host == name || strings.HasSuffix(host, "."+name) {
			return true
		}
	}
	return false
}
