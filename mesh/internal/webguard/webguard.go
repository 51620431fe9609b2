// Package webguard says which HTTP requests to a page without a login another site may have caused: by
// a link or script of its own, or by a DNS name that it points at this server (DNS rebinding).
package webguard

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// Fault says why a request is to be refused, or returns "". Allowed are requests whose Host is an IP
// address, "localhost", or one of hosts, in lower case and without ports; "*" is every host. allow says
// how to allow a further one.
func Fault(r *http.Request, hosts []string, allow string) string {
	if site := r.Header.Get("Sec-Fetch-Site"); (site == "cross-site" || site == "same-site") && r.Header.Get("Sec-Fetch-Mode") != "navigate" {
		return "another site's page may not read this one"
	}
	host := strings.ToLower((&url.URL{Host: r.Host}).Hostname())
	switch _, err := netip.ParseAddr(host); {
	case err == nil, host == "localhost", strings.HasSuffix(host, ".localhost"),
		slices.Contains(hosts, host), slices.Contains(hosts, "*"):
		return ""
	default:
		return fmt.Sprintf("the Host %.100q is not allowed: any site could point a name at this server (DNS rebinding); "+
			"use an IP address or localhost, or %s", host, allow)
	}
}
