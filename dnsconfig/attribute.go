package dnsconfig

import (
	"fmt"
	"strconv"
	"strings"
)

const (
	// attribute has the list of choices (A2, "Encoding in DNS TXT Records").
	attribute = "grpc_config"
	// Prefix of a server's name is the name that is looked up (A2, "Encoding in DNS TXT
	// Records").
	Prefix = "_grpc_config."
)

// Find returns the value of the attribute "grpc_config" in the TXT records of a name, each of
// which is the concatenation of its character strings (RFC 4408, 3.1.3). found is false if no
// record has the attribute. More than one is an error that names them.
func Find(records []string) (value string, found bool, err error) {
	var places []int
	for i, r := range records {
		name, v, ok := splitAttribute(r)
		if !ok || !strings.EqualFold(name, attribute) {
			continue
		}
		if places = append(places, i); len(places) == 1 {
			value = v
		}
	}
	if len(places) > 1 {
		return "", false, manyAttributes(records, places)
	}
	return value, len(places) == 1, nil
}

// splitAttribute splits a TXT record by RFC 1464, section 2: the first "=" that is not quoted
// by "`" ends the name; white space around the name is ignored unless it is quoted; the rest
// is the value. A record without such a "=", or without a name, has no attribute.
func splitAttribute(record string) (name, value string, ok bool) {
	var b strings.Builder
	end := 0 // of the name, without trailing white space
	for i := 0; i < len(record); i++ {
		c := record[i]
		switch {
		case c == '`' && i+1 < len(record):
			i++
			b.WriteByte(record[i])
			end = b.Len()
		case c == '=':
			name = b.String()[:end]
			return name, record[i+1:], name != ""
		case c == ' ' || c == '\t':
			if end > 0 {
				b.WriteByte(c)
			}
		default:
			b.WriteByte(c)
			end = b.Len()
		}
		if b.Len() > maxName {
			return "", "", false
		}
	}
	return "", "", false
}

// maxName bounds the length of an attribute's name.
const maxName = 255

// maxListed bounds the items that one error or log line lists.
const maxListed = 5

func manyAttributes(records []string, places []int) error {
	var b strings.Builder
	for i, place := range places {
		if i == maxListed {
			fmt.Fprintf(&b, ", and %d more", len(places)-i)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(abbreviate(records[place]))
	}
	return fmt.Errorf("%d TXT records have the attribute %s, but only one may: %s; remove all but one", len(places), attribute, b.String())
}

// abbreviate quotes a text, or the beginning of a long one.
func abbreviate(s string) string {
	const most = 60
	if len(s) > most {
		return strconv.Quote(s[:most]) + "…"
	}
	return strconv.Quote(s)
}
