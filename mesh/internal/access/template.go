package access

import (
	"fmt"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// template is a SPIFFE ID in which segments of the path may be placeholders.
type template struct {
	trustDomain spiffeid.TrustDomain
	// segments are those of the path. The first is empty, as a path begins with "/".
	segments []segment
}

// segment is the text of a segment, or the name of the placeholder that it is.
type segment struct {
	text        string
	placeholder bool
}

const templateForm = "want spiffe://TRUST-DOMAIN/PATH, in which whole segments of the path may be placeholders such as {service}"

func parseTemplate(text string) (template, error) {
	rest, ok := strings.CutPrefix(text, "spiffe://")
	if !ok {
		return template{}, fmt.Errorf("%q is no SPIFFE ID; %s", text, templateForm)
	}
	domain, path, found := strings.Cut(rest, "/")
	of := template{segments: []segment{{}}}
	var err error
	if of.trustDomain, err = spiffeid.TrustDomainFromString(domain); err != nil {
		return template{}, fmt.Errorf("%q: %w; %s", domain, err, templateForm)
	}
	if !found {
		return of, nil
	}
	for part := range strings.SplitSeq(path, "/") {
		name, placeholder := placeholderIn(part)
		if !placeholder {
			if err := spiffeid.ValidatePathSegment(part); err != nil {
				return template{}, fmt.Errorf("%q: %w; %s", part, err, templateForm)
			}
			of.segments = append(of.segments, segment{text: part})
			continue
		}
		if of.has(name) {
			return template{}, fmt.Errorf("the placeholder {%s} is there twice", name)
		}
		of.segments = append(of.segments, segment{name, true})
	}
	return of, nil
}

// placeholderIn returns the name of the placeholder that a text is.
func placeholderIn(text string) (name string, ok bool) {
	name, opened := strings.CutPrefix(text, "{")
	name, closed := strings.CutSuffix(name, "}")
	return name, opened && closed && name != "" && !strings.ContainsAny(name, "{}*")
}

// has reports whether there is a placeholder of this name.
func (t template) has(name string) bool {
	for _, of := range t.segments {
		if of.placeholder && of.text == name {
			return true
		}
	}
	return false
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
		case of.placeholder:
			values[of.text] = segments[i]
		case of.text != segments[i]:
			return nil, false
		}
	}
	return values, true
}
