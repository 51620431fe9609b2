package access

import (
	"fmt"
	"strings"
)

// pattern matches a text as a whole. A placeholder {name} stands for one or more characters up to the next "/" or,
// in a DNS name, "."; "*" at the end for any characters.
type pattern struct {
	parts  []part
	prefix bool
}

// part is a text, or the name of a placeholder.
type part struct {
	text        string
	placeholder bool
}

func parsePattern(text string) (pattern, error) {
	var p pattern
	text, p.prefix = strings.CutSuffix(text, "*")
	for text != "" {
		literal, rest, open := strings.Cut(text, "{")
		if strings.ContainsAny(literal, "*}") {
			return p, fmt.Errorf(`%q: "*" may only be the last character, and "}" needs a "{"`, literal)
		}
		if literal != "" {
			p.parts = append(p.parts, part{text: literal})
		}
		if !open {
			break
		}
		name, after, closed := strings.Cut(rest, "}")
		if !closed || name == "" || strings.ContainsAny(name, "{*") {
			return p, fmt.Errorf(`a placeholder is a name in braces, such as {service}; found %q`, "{"+rest)
		}
		p.parts = append(p.parts, part{name, true})
		text = after
	}
	return p, nil
}

// definite returns an error if it is not defined where a placeholder begins.
func (p pattern) definite() error {
	for i := 1; i < len(p.parts); i++ {
		if p.parts[i].placeholder && p.parts[i-1].placeholder {
			return fmt.Errorf("two placeholders need a text between them, as it is not defined where {%s} begins", p.parts[i].text)
		}
	}
	return nil
}

// placeholders calls yield with the names of the placeholders.
func (p pattern) placeholders(yield func(string) bool) {
	for _, of := range p.parts {
		if of.placeholder && !yield(of.text) {
			return
		}
	}
}

// match returns what the placeholders stand for. Each stands for as little as possible, and for no separator.
func (p pattern) match(text string) (values map[string]string, ok bool) {
	separator := "."
	if strings.Contains(text, "/") {
		separator = "/"
	}
	values = map[string]string{}
	if !p.matchFrom(0, text, separator, values) {
		return nil, false
	}
	return values, true
}

func (p pattern) matchFrom(i int, text, separator string, values map[string]string) bool {
	if i == len(p.parts) {
		return text == "" || p.prefix
	}
	of := p.parts[i]
	if !of.placeholder {
		rest, ok := strings.CutPrefix(text, of.text)
		return ok && p.matchFrom(i+1, rest, separator, values)
	}
	most := len(text)
	if end := strings.Index(text, separator); end >= 0 {
		most = end
	}
	for length := 1; length <= most; length++ {
		if i+1 < len(p.parts) && !strings.HasPrefix(text[length:], p.parts[i+1].text) {
			continue
		}
		if known, again := values[of.text]; again && known != text[:length] {
			continue
		}
		before, was := values[of.text]
		values[of.text] = text[:length]
		if p.matchFrom(i+1, text[length:], separator, values) {
			return true
		}
		if delete(values, of.text); was {
			values[of.text] = before
		}
	}
	return false
}

// fill returns the text with the placeholders replaced.
func (p pattern) fill(values map[string]string) string {
	var b strings.Builder
	for _, of := range p.parts {
		if of.placeholder {
			b.WriteString(values[of.text])
		} else {
			b.WriteString(of.text)
		}
	}
	return b.String()
}

// accepts reports whether a text is what the pattern is with the placeholders replaced.
func (p pattern) accepts(text string, values map[string]string) bool {
	filled := p.fill(values)
	return text == filled || p.prefix && strings.HasPrefix(text, filled)
}
