package bootstrap

import (
	"strings"

	"github.com/dynxds/dynxds/internal/xdsname"
)

// expand puts the endpoint into a template (gRFC A47). In new-style names it is
// percent-encoded as a URI path.
func expand(template, endpoint string) string {
	if strings.HasPrefix(template, xdsname.Prefix) {
		endpoint = xdsname.EncodeID(endpoint)
	}
	return strings.ReplaceAll(template, "%s", endpoint)
}
