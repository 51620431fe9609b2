package xdsclient

import (
	"fmt"
	"strings"

	"github.com/dynxds/dynxds/internal/faults"
)

// maxFaultText bounds the text of a NACK. Servers commonly accept requests of 4
// MiB.
const maxFaultText = 256 << 10

// faultList collects the faults of a response.
type faultList struct {
	omitted int
	b       strings.Builder
}

func (l *faultList) add(where string, err error) {
	text := faults.Shorten(err.Error(), maxFaultText/4)
	if l.b.Len()+len(where)+len(text) > maxFaultText {
		l.omitted++
		return
	}
	fmt.Fprintf(&l.b, "; %s: %s", where, text)
}

// text is the error_detail of the NACK of a response in which some resources are
// invalid.
func (l *faultList) text(t *ResourceType, invalid, total int) string {
	more := ""
	if l.omitted > 0 {
		more = fmt.Sprintf("; and %d more", l.omitted)
	}
	text := fmt.Sprintf("%d of %d %s resources are invalid%s%s", invalid, total, t.Name, l.b.String(), more)
	return strings.ToValidUTF8(text, "\uFFFD")
}
