package folder

import "github.com/dynxds/dynxds/mesh/internal/document"

// Joiner makes the content of a folder out of its files, wherever these are kept.
type Joiner struct{ dir string }

// NewJoiner returns a joiner for files below dir, which is the Dir of its contents.
func NewJoiner(dir string) *Joiner { return &Joiner{dir: dir} }

// Join checks the files against each other and returns what they have together. What they have are
// the pointers of the files. An error is a *document.Faults, with those of each file.
func (j *Joiner) Join(files []*File) (*Content, error) {
	var faults document.Faults
	c := &Content{Dir: j.dir, Files: len(files)}
	for _, f := range files {
		c.add(f.content)
		faults.AddAll(f.faults)
	}
	checkNames(c, &faults)
	if err := faults.Err(); err != nil {
		return nil, err
	}
	return c, nil
}
