# Stand-ins of what a modulefile calls: each says what it was told.
proc say {name args} { puts "$name $args" }
foreach name {module-whatis conflict prepend-path setenv} { interp alias {} $name {} say $name }
proc module-info {what} { return openai4s/1.0 }
source [lindex $argv 0]
ModulesHelp
