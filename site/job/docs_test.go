package job

import (
	"os"
	"reflect"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/openai4s/hpc/site"
)

const docsExample = "../../docs/job.example.toml"

func TestDocsExampleFitsTheDocsSite(t *testing.T) {
	j, err := Load(docsExample, nil)
	require.NoError(t, err)
	s, err := site.Load("../../docs/site.example.toml")
	require.NoError(t, err)
	r, err := s.Resolve(j)
	require.NoError(t, err)
	assert.Equal(t, 8, r.Size())
	assert.Equal(t, 2, r.GPUsPerNode)
	bare, err := Load(write(t, ok), nil)
	require.NoError(t, err)
	assert.Equal(t, []any{bare.Kind, bare.Output, bare.Restarts, bare.TTY, bare.UpstreamFiles, bare.GangTimeout, bare.Signal},
		[]any{j.Kind, j.Output, j.Restarts, j.TTY, j.UpstreamFiles, j.GangTimeout, j.Signal}, "the example shows the defaults")
}

func TestDocsExampleNamesEveryKey(t *testing.T) {
	text, err := os.ReadFile(docsExample)
	require.NoError(t, err)
	var check func(typ reflect.Type)
	check = func(typ reflect.Type) {
		for i := range typ.NumField() {
			f := typ.Field(i)
			key := f.Tag.Get("toml")
			assert.Regexp(t, regexp.MustCompile(`(?m)^`+key+` = |^\[+(outputs\.)?`+key+`\]|\{ `+key+` = `), string(text))
			switch sub := f.Type; {
			case sub.Kind() == reflect.Struct:
				check(sub)
			case (sub.Kind() == reflect.Slice || sub.Kind() == reflect.Map) && sub.Elem().Kind() == reflect.Struct:
				check(sub.Elem())
			}
		}
	}
	check(reflect.TypeFor[rawJob]())
}
