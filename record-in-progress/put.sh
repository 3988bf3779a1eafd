# a call for each piece, which .carrypNN carries
[ -e /tmp/all.log ] || { echo 'another machine'; exit 9; }
mv .carryp??/* /tmp/p/; ls /tmp/p | tr '\n' ' '; tail -n 2 /tmp/all.log
