package dnsconfig

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/dynxds/dynxds/internal/faults"
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
	var having []string
	for _, r := range records {
		if name, v, ok := splitAttribute(r); ok && strings.EqualFold(name, attribute) {
			having, value = append(having, strconv.Quote(faults.Shorten(r, 100))), v
		}
	}
	if len(having) > 1 {
		return "", false, fmt.Errorf("%d TXT records have the attribute %s, but only one may: %s; remove all but one",
			len(having), attribute, faults.Few(having, maxListed, ", "))
	}
	return value, len(having) == 1, nil
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
	}
	return "", "", false
}

// maxListed bounds the items that one error or log line lists.
const maxListed = 5
