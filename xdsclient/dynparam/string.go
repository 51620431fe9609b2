package dynparam

import (
	"strconv"
	"strings"

	"github.com/dynxds/dynxds/internal/faults"
)

// maxString bounds what String returns, in bytes. Longer text is cut, with an
// ellipsis.
const maxString = 1 << 10

// String returns the constraints for logs, for example
// `{env=prod, shard in [4-6] or [46-], version!=v1}`. An inverted key with several
// constraints is written `not (… and …)`. It is cut at about a thousand bytes and is
// not to be parsed; see Key and MarshalJSON.
func (c Constraints) String() string {
	var b strings.Builder
	b.WriteByte('{')
	for i := range c.keys() {
		if i > 0 {
			b.WriteString(", ")
		}
		if b.Len() > maxString {
			break
		}
		c.set.keys[i].write(&b)
	}
	return closed(&b)
}

func (k *KeyConstraints) write(b *strings.Builder) {
	group := k.invert && len(k.all) > 1
	if group {
		b.WriteString("not (")
	}
	for i := range k.all {
		if i > 0 {
			b.WriteString(" and ")
		}
		if b.Len() > maxString {
			return
		}
		b.WriteString(plain(k.key))
		k.all[i].write(b, k.invert && !group)
	}
	if group {
		b.WriteByte(')')
	}
}

func (c *Constraint) write(b *strings.Builder, not bool) {
	switch {
	case c.kind == exactly && not:
		b.WriteString("!=" + plain(c.value))
		return
	case c.kind == exactly:
		b.WriteString("=" + plain(c.value))
		return
	case not:
		b.WriteString(" not")
	}
	b.WriteString(" in ")
	for i, r := range c.ranges {
		if i > 0 {
			b.WriteString(" or ")
		}
		if b.Len() > maxString {
			return
		}
		b.WriteString(r.text())
	}
}

// text returns the range as TP2 writes it, "[4-6]", or "[46-]" if it has no upper
// bound.
func (r Range) text() string {
	s := "[" + strconv.FormatUint(r.Min, 10) + "-"
	if r.bounded() {
		s += strconv.FormatUint(r.Max, 10)
	}
	return s + "]"
}

// String returns the parameters for logs as TP2 writes them, for example
// "{env=prod,version=v1}". It is cut at about a thousand bytes.
func (p Parameters) String() string {
	var b strings.Builder
	b.WriteByte('{')
	for i, param := range p.list() {
		if i > 0 {
			b.WriteByte(',')
		}
		if b.Len() > maxString {
			break
		}
		b.WriteString(plain(param.key) + "=" + plain(param.value))
	}
	return closed(&b)
}

// closed ends what was begun with a brace, or cuts it. Each part was cut before, so
// that there is not much too much.
func closed(b *strings.Builder) string {
	if b.Len() > maxString {
		return strings.ToValidUTF8(b.String()[:maxString], "") + "…}"
	}
	return b.String() + "}"
}

// plain returns text as it is if it cannot be mistaken for something else, and
// quoted and cut otherwise.
func plain(s string) string {
	if s == "" || len(s) > faults.MaxQuoted {
		return faults.Quote(s)
	}
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9',
			c == '_', c == '-', c == '.', c == '/', c == ':':
		default:
			return faults.Quote(s)
		}
	}
	return s
}
