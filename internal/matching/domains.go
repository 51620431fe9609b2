package matching

import "strings"

// BestDomain returns the one of the domains of a virtual host that matches an authority most specifically, and its rank among all
// domains that do: an exact domain is above "*suffix", that above "prefix*", and that above "*"; of wildcards of a kind the longest is the
// highest. 0: none matches. Case does not matter.
func BestDomain(domains []string, authority string) (best string, rank uint64) {
	authority = strings.ToLower(authority)
	for _, domain := range domains {
		if r := domainRank(strings.ToLower(domain), authority); r > rank {
			best, rank = domain, r
		}
	}
	return best, rank
}

// domainRank ranks a domain, which has no DomainFault. A wildcard stands for at least one character, but "*" for any authority.
func domainRank(domain, authority string) uint64 {
	const prefixes, suffixes, exact = 1 << 32, 2 << 32, 3 << 32
	length := uint64(len(domain))
	if suffix, ok := strings.CutPrefix(domain, "*"); ok {
		switch {
		case suffix == "":
			return 1
		case len(domain) <= len(authority) && strings.HasSuffix(authority, suffix):
			return suffixes + length
		}
		return 0
	}
	switch prefix, ok := strings.CutSuffix(domain, "*"); {
	case ok && len(domain) <= len(authority) && strings.HasPrefix(authority, prefix):
		return prefixes + length
	case !ok && domain == authority:
		return exact
	}
	return 0
}

// DomainFault describes the error of a domain, or returns "".
func DomainFault(domain string) string {
	if domain == "" {
		return "must not be empty"
	}
	inner := strings.Contains(domain[1:max(1, len(domain)-1)], "*")
	both := len(domain) > 1 && domain[0] == '*' && domain[len(domain)-1] == '*'
	if inner || both {
		return "must have at most one *, as its first or last character"
	}
	return ""
}
