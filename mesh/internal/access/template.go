package access

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// template is a SPIFFE ID in which segments of the path may be placeholders.
type template struct {
	trustDomain spiffeid.TrustDomain
	// segments are those of the path, of which the first is empty, as a path begins with "/". A placeholder is in braces, which no
	// other segment has.
	segments []string
}

const templateForm = "want spiffe://TRUST-DOMAIN/PATH, in which whole segments of the path may be placeholders such as {service}"

func parseTemplate(text string) (t template, err error) {
	id, ok := strings.CutPrefix(text, "spiffe://")
	if !ok {
		return t, fmt.Errorf("%q is no SPIFFE ID; %s", text, templateForm)
	}
	segments := strings.Split(id, "/")
	if t.trustDomain, err = spiffeid.TrustDomainFromString(segments[0]); err != nil {
		return t, fmt.Errorf("%q: %w; %s", segments[0], err, templateForm)
	}
	segments[0] = ""
	for i, segment := range segments[1:] {
		if isPlaceholder(segment) {
			if slices.Contains(segments[:i+1], segment) {
				return t, fmt.Errorf("the placeholder %s is there twice", segment)
			}
		} else if err := spiffeid.ValidatePathSegment(segment); err != nil {
			return t, fmt.Errorf("%q: %w; %s", segment, err, templateForm)
		}
	}
	t.segments = segments
	return t, nil
}

// isPlaceholder reports whether a text is a name in braces.
func isPlaceholder(text string) bool {
	return placeholder.FindString(text) == text && text != ""
}

// match returns what the placeholders stand for in an ID.
func (t template) match(id spiffeid.ID) (values map[string]string, ok bool) {
	segments := strings.Split(id.Path(), "/")
	if id.TrustDomain() != t.trustDomain || len(segments) != len(t.segments) {
		return nil, false
	}
	values = map[string]string{}
	for i, of := range t.segments {
		switch {
		case isPlaceholder(of):
			values[of] = segments[i]
		case of != segments[i]:
			return nil, false
		}
	}
	return values, true
}
